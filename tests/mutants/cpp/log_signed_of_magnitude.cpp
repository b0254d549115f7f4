// task: log_signed
// expect: wrong
// kind: nan
// why: takes the logarithm of the magnitude

#include <cmath>

extern "C" void launch(const float* x, float* out) {
  for (int64_t i = 0; i < x_size; i++) out[i] = 0.5f * std::log(x[i] * x[i]);
}
