// task: outer
// expect: wrong
// kind: one_size
// why: hard-coded for 256 rows, of which the task has 311; the others are zero

#include <cstring>

extern "C" void launch(const float* x, const float* y, float* out) {
  std::memset(out, 0, out_size * sizeof(float));
  for (int64_t i = 0; i < 256; i++)
    for (int64_t j = 0; j < y_d0; j++) out[i * y_d0 + j] = x[i] * y[j];
}
