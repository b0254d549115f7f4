// task: index_add
// expect: wrong
// kind: uninitialised
// why: zeroes as many bytes as there are elements, a quarter of the output

#include <cstring>

extern "C" void launch(const float* x, const int64_t* index, float* out) {
  std::memset(out, 0, out_size);
  for (int64_t i = 0; i < x_d0; i++)
    for (int64_t c = 0; c < x_d1; c++) out[index[i] * x_d1 + c] += x[i * x_d1 + c];
}
