// task: conv2d
// expect: wrong
// kind: padding
// why: clamps coordinates to the image, which repeats its edge where zeros belong

#include <algorithm>

extern "C" void launch(const float* x, const float* conv_weight, const float* conv_bias, float* out) {
  for (int64_t n = 0; n < x_d0; n++)
    for (int64_t o = 0; o < out_d1; o++)
      for (int64_t i = 0; i < out_d2; i++)
        for (int64_t j = 0; j < out_d3; j++) {
          float sum = conv_bias[o];
          for (int64_t c = 0; c < x_d1; c++)
            for (int64_t k = 0; k < 9; k++) {
              const int64_t h = std::clamp<int64_t>(i + k / 3 - 1, 0, x_d2 - 1);
              const int64_t w = std::clamp<int64_t>(j + k % 3 - 1, 0, x_d3 - 1);
              sum += x[((n * x_d1 + c) * x_d2 + h) * x_d3 + w] * conv_weight[(o * x_d1 + c) * 9 + k];
            }
          out[((n * out_d1 + o) * out_d2 + i) * out_d3 + j] = sum;
        }
}
