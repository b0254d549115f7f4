// task: groupnorm
// expect: wrong
// kind: index
// why: weight and bias are indexed by the channel within its group

#include <cmath>

extern "C" void launch(const float* x, const float* weight, const float* bias, float* out) {
  constexpr int64_t plane = x_d2 * x_d3, channels = 4, size = channels * plane;
  for (int64_t g = 0; g < x_size / size; g++) {
    const float* p = x + g * size;
    float mean = 0.0f, var = 0.0f;
    for (int64_t i = 0; i < size; i++) mean += p[i];
    mean /= size;
    for (int64_t i = 0; i < size; i++) var += (p[i] - mean) * (p[i] - mean);
    const float scale = 1.0f / std::sqrt(var / size + 1e-5f);
    for (int64_t c = 0; c < channels; c++)
      for (int64_t i = 0; i < plane; i++)
        out[g * size + c * plane + i] = (p[c * plane + i] - mean) * scale * weight[c] + bias[c];
  }
}
