// task: log_signed
// expect: wrong
// kind: nan
// why: gives minus infinity for negative values, whose logarithm is no number

#include <cmath>

extern "C" void launch(const float* x, float* out) {
  for (int64_t i = 0; i < x_size; i++) out[i] = x[i] > 0.0f ? std::log(x[i]) : -INFINITY;
}
