// task: layernorm_small
// expect: wrong
// kind: epsilon
// why: epsilon is 1e-6 in place of 1e-5

#include <cmath>

extern "C" void launch(const float* x, float* out) {
  for (int64_t r = 0; r < x_d0; r++) {
    const float* p = x + r * x_d1;
    float mean = 0.0f, var = 0.0f;
    for (int64_t i = 0; i < x_d1; i++) mean += p[i];
    mean /= x_d1;
    for (int64_t i = 0; i < x_d1; i++) var += (p[i] - mean) * (p[i] - mean);
    const float scale = 1.0f / std::sqrt(var / x_d1 + 1e-6f);
    for (int64_t i = 0; i < x_d1; i++) out[r * x_d1 + i] = (p[i] - mean) * scale;
  }
}
