// task: layernorm_small
// expect: wrong
// kind: epsilon
// why: epsilon is added to the deviation and not to the variance

#include <cmath>

extern "C" void launch(const float* x, float* out) {
  for (int64_t r = 0; r < x_d0; r++) {
    const float* p = x + r * x_d1;
    double mean = 0.0, var = 0.0;
    for (int64_t i = 0; i < x_d1; i++) mean += p[i];
    mean /= x_d1;
    for (int64_t i = 0; i < x_d1; i++) var += (p[i] - mean) * (p[i] - mean);
    const double deviation = std::sqrt(var / x_d1);
    for (int64_t i = 0; i < x_d1; i++) out[r * x_d1 + i] = (float)((p[i] - mean) / (deviation + 1e-5));
  }
}
