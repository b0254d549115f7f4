// task: cumsum_columns
// expect: right
// kind: order
// why: reads back what it has written, one row above

#include <cstring>

extern "C" void launch(const float* x, float* out) {
  std::memcpy(out, x, x_size * sizeof(float));
  for (int64_t i = x_d1; i < x_size; i++) out[i] += out[i - x_d1];
}
