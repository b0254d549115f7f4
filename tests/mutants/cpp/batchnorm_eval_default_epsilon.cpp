// task: batchnorm_eval
// expect: wrong
// kind: epsilon
// why: takes the usual epsilon of 1e-5 where the task has 1e-2

#include <cmath>

extern "C" void launch(const float* x, const float* weight, const float* bias, const float* mean, const float* var,
                       float* out) {
  constexpr int64_t plane = x_d2 * x_d3;
  for (int64_t i = 0; i < x_size; i++) {
    const int64_t c = i / plane % x_d1;
    out[i] = (x[i] - mean[c]) / std::sqrt(var[c] + 1e-5f) * weight[c] + bias[c];
  }
}
