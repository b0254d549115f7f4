// task: softmax_sharp
// expect: wrong
// kind: overflow
// why: no maximum is taken off: exp overflows and infinity over infinity is no number

#include <cmath>

extern "C" void launch(const float* x, float* out) {
  for (int64_t r = 0; r < x_d0; r++) {
    float sum = 0.0f;
    for (int64_t i = 0; i < x_d1; i++) sum += std::exp(40.0f * x[r * x_d1 + i]);
    for (int64_t i = 0; i < x_d1; i++) out[r * x_d1 + i] = std::exp(40.0f * x[r * x_d1 + i]) / sum;
  }
}
