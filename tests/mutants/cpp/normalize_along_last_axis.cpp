// task: normalize
// expect: wrong
// kind: axis
// why: norms along the last axis

#include <cmath>

extern "C" void launch(const float* x, float* out) {
  for (int64_t r = 0; r < x_d0 * x_d1; r++) {
    float square = 0.0f;
    for (int64_t i = 0; i < x_d2; i++) square += x[r * x_d2 + i] * x[r * x_d2 + i];
    for (int64_t i = 0; i < x_d2; i++) out[r * x_d2 + i] = x[r * x_d2 + i] / std::fmax(std::sqrt(square), 1e-12f);
  }
}
