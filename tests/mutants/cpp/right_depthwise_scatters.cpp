// task: depthwise
// expect: right
// kind: order
// why: zeroes its output, then each input adds itself to what it reaches

#include <algorithm>

extern "C" void launch(const float* x, const float* conv_weight, float* out) {
  std::fill_n(out, out_size, 0.0f);
  for (int64_t p = 0; p < x_d0 * x_d1; p++)
    for (int64_t h = 0; h < x_d2; h++)
      for (int64_t w = 0; w < x_d3; w++)
        for (int64_t k = 0; k < 9; k++) {
          const int64_t i = h - k / 3 + 1, j = w - k % 3 + 1;
          if (i >= 0 && i < out_d2 && j >= 0 && j < out_d3)
            out[(p * out_d2 + i) * out_d3 + j] += x[(p * x_d2 + h) * x_d3 + w] * conv_weight[p % x_d1 * 9 + k];
        }
}
