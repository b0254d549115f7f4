// task: layernorm_shifted
// expect: wrong
// kind: cancellation
// why: variance as the mean of squares less the square of the mean, in float, of values around 300

#include <cmath>

extern "C" void launch(const float* x, float* out) {
  for (int64_t r = 0; r < x_d0; r++) {
    const float* p = x + r * x_d1;
    float sum = 0.0f, squares = 0.0f;
    for (int64_t i = 0; i < x_d1; i++) {
      sum += p[i];
      squares += p[i] * p[i];
    }
    const float mean = sum / x_d1, var = squares / x_d1 - mean * mean;
    const float scale = 1.0f / std::sqrt(std::fmax(var, 0.0f) + 1e-5f);
    for (int64_t i = 0; i < x_d1; i++) out[r * x_d1 + i] = (p[i] - mean) * scale;
  }
}
