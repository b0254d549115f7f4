// task: batchnorm
// expect: wrong
// kind: axis
// why: statistics of each image and channel, as an instance norm has them

#include <cmath>

extern "C" void launch(const float* x, const float* weight, const float* bias, float* out) {
  constexpr int64_t plane = x_d2 * x_d3;
  for (int64_t n = 0; n < x_d0; n++)
    for (int64_t c = 0; c < x_d1; c++) {
      const float* p = x + (n * x_d1 + c) * plane;
      float mean = 0.0f, var = 0.0f;
      for (int64_t i = 0; i < plane; i++) mean += p[i] / plane;
      for (int64_t i = 0; i < plane; i++) var += (p[i] - mean) * (p[i] - mean) / plane;
      const float scale = weight[c] / std::sqrt(var + 1e-5f);
      for (int64_t i = 0; i < plane; i++) out[(n * x_d1 + c) * plane + i] = (p[i] - mean) * scale + bias[c];
    }
}
