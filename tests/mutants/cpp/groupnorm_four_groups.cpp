// task: groupnorm
// expect: wrong
// kind: axis
// why: takes the channels of a group for the number of groups: four groups of six

#include <cmath>

extern "C" void launch(const float* x, const float* weight, const float* bias, float* out) {
  constexpr int64_t plane = x_d2 * x_d3, groups = 4, channels = x_d1 / groups, size = channels * plane;
  for (int64_t g = 0; g < x_d0 * groups; g++) {
    const float* p = x + g * size;
    float mean = 0.0f, var = 0.0f;
    for (int64_t i = 0; i < size; i++) mean += p[i];
    mean /= size;
    for (int64_t i = 0; i < size; i++) var += (p[i] - mean) * (p[i] - mean);
    const float scale = 1.0f / std::sqrt(var / size + 1e-5f);
    for (int64_t i = 0; i < size; i++) {
      const int64_t c = g % groups * channels + i / plane;
      out[g * size + i] = (p[i] - mean) * scale * weight[c] + bias[c];
    }
  }
}
