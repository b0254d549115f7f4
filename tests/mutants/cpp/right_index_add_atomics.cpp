// task: index_add
// expect: right
// kind: atomics
// why: adds under OpenMP with atomic updates, in no certain order

#include <cstring>

extern "C" void launch(const float* x, const int64_t* index, float* out) {
  std::memset(out, 0, out_size * sizeof(float));
#pragma omp parallel for
  for (int64_t i = 0; i < x_d0; i++)
    for (int64_t c = 0; c < x_d1; c++) {
#pragma omp atomic
      out[index[i] * x_d1 + c] += x[i * x_d1 + c];
    }
}
