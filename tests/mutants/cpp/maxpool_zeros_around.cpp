// task: maxpool
// expect: wrong
// kind: padding
// why: pads with zeros where nothing belongs: windows of negative values at the edge give zero

#include <algorithm>
#include <cfloat>
#include <vector>

extern "C" void launch(const float* x, float* out) {
  constexpr int64_t height = x_d2 + 2, width = x_d3 + 2;
  std::vector<float> padded(height * width);
  for (int64_t p = 0; p < x_d0 * x_d1; p++) {
    for (int64_t h = 0; h < x_d2; h++)
      std::copy_n(x + (p * x_d2 + h) * x_d3, x_d3, padded.data() + (h + 1) * width + 1);
    for (int64_t i = 0; i < out_d2; i++)
      for (int64_t j = 0; j < out_d3; j++) {
        float top = -FLT_MAX;
        for (int64_t k = 0; k < 9; k++) top = std::max(top, padded[(2 * i + k / 3) * width + 2 * j + k % 3]);
        out[(p * out_d2 + i) * out_d3 + j] = top;
      }
  }
}
