// task: softmax_sharp
// expect: wrong
// kind: overflow
// why: clamps the exponent at 80 in place of a maximum, so that several large values share the weight

#include <cmath>

extern "C" void launch(const float* x, float* out) {
  for (int64_t r = 0; r < x_d0; r++) {
    const float* p = x + r * x_d1;
    double sum = 0.0;
    for (int64_t i = 0; i < x_d1; i++) sum += std::exp(std::fmin(40.0f * p[i], 80.0f));
    for (int64_t i = 0; i < x_d1; i++) out[r * x_d1 + i] = (float)(std::exp(std::fmin(40.0f * p[i], 80.0f)) / sum);
  }
}
