// task: layernorm
// expect: right
// kind: sum_order
// why: mean and variance in one pass after Welford

#include <cmath>

extern "C" void launch(const float* x, const float* weight, const float* bias, float* out) {
  for (int64_t r = 0; r < x_d0; r++) {
    const float* p = x + r * x_d1;
    float mean = 0.0f, spread = 0.0f;
    for (int64_t i = 0; i < x_d1; i++) {
      const float apart = p[i] - mean;
      mean += apart / (i + 1);
      spread += apart * (p[i] - mean);
    }
    const float scale = 1.0f / std::sqrt(spread / x_d1 + 1e-5f);
    for (int64_t i = 0; i < x_d1; i++) out[r * x_d1 + i] = (p[i] - mean) * scale * weight[i] + bias[i];
  }
}
