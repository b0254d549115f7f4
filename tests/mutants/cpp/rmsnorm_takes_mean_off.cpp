// task: rmsnorm
// expect: wrong
// kind: formula
// why: is a layer norm: it centres what should only be scaled

#include <cmath>

extern "C" void launch(const float* x, const float* weight, float* out) {
  for (int64_t r = 0; r < x_d0; r++) {
    const float* p = x + r * x_d1;
    float mean = 0.0f, square = 0.0f;
    for (int64_t i = 0; i < x_d1; i++) mean += p[i];
    mean /= x_d1;
    for (int64_t i = 0; i < x_d1; i++) square += (p[i] - mean) * (p[i] - mean);
    const float scale = 1.0f / std::sqrt(square / x_d1 + 1e-6f);
    for (int64_t i = 0; i < x_d1; i++) out[r * x_d1 + i] = (p[i] - mean) * scale * weight[i];
  }
}
