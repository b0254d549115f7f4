// task: sum_mid
// expect: wrong
// kind: uninitialised
// why: partial sums start from whatever a freed block of memory holds

#include <cstdlib>

extern "C" void launch(const float* x, float* out) {
  float* used = (float*)std::malloc(out_size * sizeof(float));
  for (int64_t i = 0; i < out_size; i++) used[i] = x[i];
  asm volatile("" : : "r"(used) : "memory");
  std::free(used);
  float* sums = (float*)std::malloc(out_size * sizeof(float));
  asm volatile("" : : "r"(sums) : "memory");
  for (int64_t i = 0; i < x_d0; i++)
    for (int64_t j = 0; j < x_d1; j++)
      for (int64_t k = 0; k < x_d2; k++) sums[i * x_d2 + k] += x[(i * x_d1 + j) * x_d2 + k];
  for (int64_t i = 0; i < out_size; i++) out[i] = sums[i];
  std::free(sums);
}
