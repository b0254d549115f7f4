// task: mse
// expect: wrong
// kind: half_sums
// why: sums a hundred thousand squares with eleven significant bits in blocks of 64

#include <cmath>

static float narrow(float value) {
  int exponent;
  const float mantissa = std::frexp(value, &exponent);
  return std::ldexp(std::floor(mantissa * 2048.0f) / 2048.0f, exponent);
}

extern "C" void launch(const float* x, const float* y, float* out) {
  float total = 0.0f;
  for (int64_t start = 0; start < x_size; start += 64) {
    float block = 0.0f;
    for (int64_t i = start; i < start + 64 && i < x_size; i++) block += (x[i] - y[i]) * (x[i] - y[i]);
    total = narrow(total + block);
  }
  *out = total / x_size;
}
