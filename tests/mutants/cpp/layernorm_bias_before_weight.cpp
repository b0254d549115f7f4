// task: layernorm
// expect: wrong
// kind: bias
// why: adds the bias before it multiplies by the weight

#include <cmath>

extern "C" void launch(const float* x, const float* weight, const float* bias, float* out) {
  for (int64_t r = 0; r < x_d0; r++) {
    const float* p = x + r * x_d1;
    double mean = 0.0, square = 0.0;
    for (int64_t i = 0; i < x_d1; i++) {
      mean += p[i];
      square += (double)p[i] * p[i];
    }
    mean /= x_d1;
    const double scale = 1.0 / std::sqrt(square / x_d1 - mean * mean + 1e-5);
    for (int64_t i = 0; i < x_d1; i++) out[r * x_d1 + i] = (float)((p[i] - mean) * scale + bias[i]) * weight[i];
  }
}
