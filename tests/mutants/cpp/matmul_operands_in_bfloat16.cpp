// task: matmul
// expect: wrong
// kind: half_sums
// why: both operands lose sixteen bits before they are multiplied; the sums are exact

#include <cstring>

static double narrow(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  bits &= 0xffff0000u;
  std::memcpy(&value, &bits, 4);
  return value;
}

extern "C" void launch(const float* a, const float* b, float* out) {
  for (int64_t i = 0; i < a_d0; i++)
    for (int64_t j = 0; j < b_d1; j++) {
      double sum = 0.0;
      for (int64_t k = 0; k < a_d1; k++) sum += narrow(a[i * a_d1 + k]) * narrow(b[k * b_d1 + j]);
      out[i * b_d1 + j] = (float)sum;
    }
}
