// task: cumsum_columns
// expect: wrong
// kind: half_sums
// why: between blocks of 32 rows the carry is kept with eleven significant bits

#include <cmath>

static float narrow(float value) {
  int exponent;
  const float mantissa = std::frexp(value, &exponent);
  return std::ldexp(std::round(mantissa * 2048.0f) / 2048.0f, exponent);
}

extern "C" void launch(const float* x, float* out) {
  float carry[x_d1] = {};
  for (int64_t start = 0; start < x_d0; start += 32)
    for (int64_t c = 0; c < x_d1; c++) {
      float sum = carry[c];
      for (int64_t r = start; r < x_d0 && r < start + 32; r++) out[r * x_d1 + c] = sum += x[r * x_d1 + c];
      carry[c] = narrow(sum);
    }
}
