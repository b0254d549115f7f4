// task: gelu_bias
// expect: right
// kind: fast_math
// why: the error function by five terms of Abramowitz and Stegun, right to a millionth

#include <cmath>

static float erf_by_series(float v) {
  const float t = 1.0f / (1.0f + 0.3275911f * std::fabs(v));
  const float terms =
      t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
  return std::copysign(1.0f - terms * std::exp(-v * v), v);
}

extern "C" void launch(const float* x, const float* bias, float* out) {
  for (int64_t r = 0; r < x_d0; r++)
    for (int64_t c = 0; c < x_d1; c++) {
      const float v = x[r * x_d1 + c] + bias[c];
      out[r * x_d1 + c] = 0.5f * v * (1.0f + erf_by_series(0.70710678f * v));
    }
}
