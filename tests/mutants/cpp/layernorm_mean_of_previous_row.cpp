// task: layernorm
// expect: wrong
// kind: stale
// why: software pipelining gone wrong: a row is centred by the mean of the row before

#include <cmath>

static float mean_of(const float* p) {
  float sum = 0.0f;
  for (int64_t i = 0; i < x_d1; i++) sum += p[i];
  return sum / x_d1;
}

extern "C" void launch(const float* x, const float* weight, const float* bias, float* out) {
  float ready = mean_of(x);
  for (int64_t r = 0; r < x_d0; r++) {
    const float* p = x + r * x_d1;
    const float mean = ready;
    ready = mean_of(p);
    float var = 0.0f;
    for (int64_t i = 0; i < x_d1; i++) var += (p[i] - mean) * (p[i] - mean);
    const float scale = 1.0f / std::sqrt(var / x_d1 + 1e-5f);
    for (int64_t i = 0; i < x_d1; i++) out[r * x_d1 + i] = (p[i] - mean) * scale * weight[i] + bias[i];
  }
}
