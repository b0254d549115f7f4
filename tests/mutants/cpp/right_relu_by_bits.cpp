// task: relu
// expect: right
// kind: fast_math
// why: clears values whose sign bit is set, in integers

#include <cstring>

extern "C" void launch(const float* x, float* out) {
  for (int64_t i = 0; i < x_size; i++) {
    int32_t bits;
    std::memcpy(&bits, x + i, 4);
    bits &= ~(bits >> 31);
    std::memcpy(out + i, &bits, 4);
  }
}
