// task: maxpool
// expect: wrong
// kind: edge
// why: leaves out the third column of each window

#include <cmath>

extern "C" void launch(const float* x, float* out) {
  for (int64_t p = 0; p < x_d0 * x_d1; p++)
    for (int64_t i = 0; i < out_d2; i++)
      for (int64_t j = 0; j < out_d3; j++) {
        float top = -INFINITY;
        for (int64_t h = 2 * i - 1; h < 2 * i + 2; h++)
          for (int64_t w = 2 * j - 1; w < 2 * j + 1; w++)
            if (h >= 0 && h < x_d2 && w >= 0 && w < x_d3) top = std::fmax(top, x[(p * x_d2 + h) * x_d3 + w]);
        out[(p * out_d2 + i) * out_d3 + j] = top;
      }
}
