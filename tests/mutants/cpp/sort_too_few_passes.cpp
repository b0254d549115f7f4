// task: sort
// expect: wrong
// kind: edge
// why: an odd-even sort of 257 values with 240 passes: enough for most rows and not for all

#include <algorithm>

extern "C" void launch(const float* x, float* out) {
  for (int64_t i = 0; i < x_size; i++) out[i] = x[i];
  for (int64_t r = 0; r < x_d0; r++) {
    float* row = out + r * x_d1;
    for (int64_t pass = 0; pass < 240; pass++)
      for (int64_t i = pass % 2; i + 1 < x_d1; i += 2)
        if (row[i] > row[i + 1]) std::swap(row[i], row[i + 1]);
  }
}
