// task: matmul
// expect: right
// kind: scratch
// why: turns the right operand in memory of its own, and takes four sums at once

#include <memory>

extern "C" void launch(const float* a, const float* b, float* out) {
  std::unique_ptr<float[]> turned(new float[b_size]);
  for (int64_t k = 0; k < b_d0; k++)
    for (int64_t j = 0; j < b_d1; j++) turned[j * b_d0 + k] = b[k * b_d1 + j];
  for (int64_t i = 0; i < a_d0; i++)
    for (int64_t j = 0; j < b_d1; j++) {
      float s[4] = {};
      for (int64_t k = 0; k < a_d1; k++) s[k % 4] += a[i * a_d1 + k] * turned[j * b_d0 + k];
      out[i * b_d1 + j] = s[0] + s[1] + s[2] + s[3];
    }
}
