// task: softplus
// expect: wrong
// kind: overflow
// why: the logarithm of one plus an exponential, which is infinite from 89 on

#include <cmath>

extern "C" void launch(const float* x, float* out) {
  for (int64_t i = 0; i < x_size; i++) out[i] = std::log(1.0f + std::exp(40.0f * x[i]));
}
