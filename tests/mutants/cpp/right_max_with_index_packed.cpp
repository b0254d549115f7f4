// task: max_with_index
// expect: right
// kind: fast_math
// why: value and index in one integer that is ordered as they are

#include <cstring>

static uint32_t ordered(float v) {
  uint32_t bits;
  std::memcpy(&bits, &v, 4);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

extern "C" void launch(const float* x, float* out0, int64_t* out1) {
  for (int64_t n = 0; n < x_d0; n++)
    for (int64_t c = 0; c < x_d2; c++) {
      const float* p = x + n * x_d1 * x_d2 + c;
      uint64_t best = 0;
      for (int64_t i = 0; i < x_d1; i++) {
        const uint64_t key = (uint64_t)ordered(p[i * x_d2]) << 32 | (uint32_t)(x_d1 - 1 - i);
        best = key > best ? key : best;
      }
      const int64_t at = x_d1 - 1 - (int64_t)(best & 0xffffffffu);
      out0[n * x_d2 + c] = p[at * x_d2];
      out1[n * x_d2 + c] = at;
    }
}
