// task: layernorm
// expect: wrong
// kind: formula
// why: the variance is the unbiased one

#include <cmath>

extern "C" void launch(const float* x, const float* weight, const float* bias, float* out) {
  for (int64_t r = 0; r < x_d0; r++) {
    const float* p = x + r * x_d1;
    float mean = 0.0f, var = 0.0f;
    for (int64_t i = 0; i < x_d1; i++) mean += p[i] / x_d1;
    for (int64_t i = 0; i < x_d1; i++) var += (p[i] - mean) * (p[i] - mean);
    const float scale = 1.0f / std::sqrt(var / (x_d1 - 1) + 1e-5f);
    for (int64_t i = 0; i < x_d1; i++) out[r * x_d1 + i] = (p[i] - mean) * scale * weight[i] + bias[i];
  }
}
