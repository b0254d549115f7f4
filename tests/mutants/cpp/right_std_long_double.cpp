// task: std
// expect: right
// kind: sum_order
// why: sums in the longest type, columns from both ends

#include <cmath>

extern "C" void launch(const float* x, float* out) {
  for (int64_t r = 0; r < x_d0; r++) {
    const float* p = x + r * x_d1;
    long double sum = p[x_d1 / 2], squares = (long double)p[x_d1 / 2] * p[x_d1 / 2];
    for (int64_t i = 0, j = x_d1 - 1; i < j; i++, j--) {
      sum += (long double)p[i] + p[j];
      squares += (long double)p[i] * p[i] + (long double)p[j] * p[j];
    }
    out[r] = (float)std::sqrt((squares - sum * sum / x_d1) / (x_d1 - 1));
  }
}
