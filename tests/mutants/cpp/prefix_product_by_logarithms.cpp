// task: prefix_product
// expect: wrong
// kind: half_sums
// why: a product as the exponential of a sum of logarithms that are rounded to a thousandth

#include <cmath>

extern "C" void launch(const float* x, float* out) {
  for (int64_t r = 0; r < x_d0; r++) {
    int sum = 0;
    for (int64_t i = 0; i < x_d1; i++) {
      sum += (int)std::lround(1000.0f * std::log(x[r * x_d1 + i]));
      out[r * x_d1 + i] = std::exp(sum / 1000.0f);
    }
  }
}
