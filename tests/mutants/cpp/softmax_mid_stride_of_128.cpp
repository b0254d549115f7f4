// task: softmax_mid
// expect: wrong
// kind: strides
// why: walks the middle axis in steps of 128 where a row has 129 columns

#include <cmath>

constexpr int64_t STEP = 128;

extern "C" void launch(const float* x, float* out) {
  for (int64_t b = 0; b < x_d0; b++)
    for (int64_t c = 0; c < x_d2; c++) {
      const float* p = x + b * x_d1 * x_d2 + c;
      float sum = 0.0f;
      for (int64_t i = 0; i < x_d1; i++) sum += std::exp(p[i * STEP]);
      for (int64_t i = 0; i < x_d1; i++) out[(b * x_d1 + i) * x_d2 + c] = std::exp(p[i * x_d2]) / sum;
    }
}
