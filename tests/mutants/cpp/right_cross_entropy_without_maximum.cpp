// task: cross_entropy
// expect: right
// kind: fast_math
// why: no maximum is taken off, since doubles hold the exponential of any logit that comes

#include <cmath>

extern "C" void launch(const float* x, const int64_t* target, float* out) {
  double loss = 0.0;
  for (int64_t n = 0; n < x_d0; n++) {
    double sum = 0.0;
    for (int64_t c = 0; c < x_d1; c++) sum += std::exp2(1.4426950408889634 * x[n * x_d1 + c]);
    loss += std::log(sum) - x[n * x_d1 + target[n]];
  }
  out[0] = static_cast<float>(loss / x_d0);
}
