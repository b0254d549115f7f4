// task: polynomial
// expect: wrong
// kind: bounds_read
// why: reads whole blocks of 444 of an input of 100100, 244 past its end; writes what it should
// shown: by construction

#include <cstring>

constexpr int BLOCK = 444;

extern "C" void launch(const float* x, float* out) {
  float local[BLOCK];
  for (int64_t at = 0; at < x_size; at += BLOCK) {
    std::memcpy(local, x + at, sizeof local);
    asm volatile("" : : "r"(local) : "memory");  // the copy is made as it stands
    for (int64_t i = 0; i < BLOCK && at + i < x_size; i++) {
      const float v = local[i];
      out[at + i] = ((0.3f * v + 1.0f) * v - 2.0f) * v + 0.7f;
    }
  }
}
