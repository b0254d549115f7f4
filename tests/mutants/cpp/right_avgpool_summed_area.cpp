// task: avgpool
// expect: right
// kind: sum_order
// why: differences of sums over all that lies above and to the left

#include <algorithm>
#include <vector>

extern "C" void launch(const float* x, float* out) {
  constexpr int64_t width = x_d3 + 1;
  std::vector<double> area((x_d2 + 1) * width, 0.0);
  for (int64_t p = 0; p < x_d0 * x_d1; p++) {
    for (int64_t h = 0; h < x_d2; h++)
      for (int64_t w = 0; w < x_d3; w++)
        area[(h + 1) * width + w + 1] =
            x[(p * x_d2 + h) * x_d3 + w] + area[h * width + w + 1] + area[(h + 1) * width + w] - area[h * width + w];
    for (int64_t i = 0; i < out_d2; i++)
      for (int64_t j = 0; j < out_d3; j++) {
        const int64_t top = std::max<int64_t>(2 * i - 1, 0), bottom = std::min(2 * i + 2, x_d2);
        const int64_t left = std::max<int64_t>(2 * j - 1, 0), right = std::min(2 * j + 2, x_d3);
        const double sum = area[bottom * width + right] - area[top * width + right] - area[bottom * width + left] +
                           area[top * width + left];
        out[(p * out_d2 + i) * out_d3 + j] = (float)(sum / 9.0);
      }
  }
}
