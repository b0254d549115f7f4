// task: sort
// expect: right
// kind: scratch
// why: a radix sort of the bits, four passes of a byte

#include <cstring>

extern "C" void launch(const float* x, float* out) {
  uint32_t keys[x_d1], other[x_d1];
  for (int64_t r = 0; r < x_d0; r++) {
    std::memcpy(keys, x + r * x_d1, sizeof keys);
    for (uint32_t& k : keys) k = k & 0x80000000u ? ~k : k | 0x80000000u;
    for (int shift = 0; shift < 32; shift += 8) {
      int64_t start[257] = {};
      for (uint32_t k : keys) start[(k >> shift & 255) + 1]++;
      for (int b = 0; b < 256; b++) start[b + 1] += start[b];
      for (uint32_t k : keys) other[start[k >> shift & 255]++] = k;
      std::memcpy(keys, other, sizeof keys);
    }
    for (uint32_t& k : keys) k = k & 0x80000000u ? k & 0x7fffffffu : ~k;
    std::memcpy(out + r * x_d1, keys, sizeof keys);
  }
}
