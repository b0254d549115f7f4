// task: std
// expect: wrong
// kind: formula
// why: divides by n in place of n - 1

#include <cmath>

extern "C" void launch(const float* x, float* out) {
  for (int64_t r = 0; r < x_d0; r++) {
    double mean = 0.0, square = 0.0;
    for (int64_t i = 0; i < x_d1; i++) mean += x[r * x_d1 + i];
    mean /= x_d1;
    for (int64_t i = 0; i < x_d1; i++) square += (x[r * x_d1 + i] - mean) * (x[r * x_d1 + i] - mean);
    out[r] = (float)std::sqrt(square / x_d1);
  }
}
