// task: softmax_mid
// expect: wrong
// kind: axis
// why: normalises along the last axis in place of the middle one

#include <cmath>

extern "C" void launch(const float* x, float* out) {
  for (int64_t r = 0; r < x_d0 * x_d1; r++) {
    const float* p = x + r * x_d2;
    float sum = 0.0f;
    for (int64_t i = 0; i < x_d2; i++) sum += std::exp(p[i]);
    for (int64_t i = 0; i < x_d2; i++) out[r * x_d2 + i] = std::exp(p[i]) / sum;
  }
}
