// task: cumsum
// expect: right
// kind: scratch
// why: takes 8 MB in its first call and keeps them, which is no leak

#include <cstdlib>
#include <cstring>

static double* sums = nullptr;

extern "C" void launch(const float* x, float* out) {
  if (sums == nullptr) {
    sums = (double*)std::malloc(8 << 20);
    std::memset(sums, 0, 8 << 20);
  }
  for (int64_t r = 0; r < x_d0; r++) {
    sums[0] = 0.0;
    for (int64_t i = 0; i < x_d1; i++) sums[i + 1] = sums[i] + x[r * x_d1 + i];
    for (int64_t i = 0; i < x_d1; i++) out[r * x_d1 + i] = (float)sums[i + 1];
  }
}
