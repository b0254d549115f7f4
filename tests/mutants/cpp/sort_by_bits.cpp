// task: sort
// expect: wrong
// kind: drawn_values
// why: sorts by the bits as signed integers, which puts negative floats in reverse

#include <algorithm>
#include <cstring>

extern "C" void launch(const float* x, float* out) {
  std::memcpy(out, x, x_size * sizeof(float));
  int32_t* keys = reinterpret_cast<int32_t*>(out);
  for (int64_t r = 0; r < x_d0; r++) std::sort(keys + r * x_d1, keys + (r + 1) * x_d1);
}
