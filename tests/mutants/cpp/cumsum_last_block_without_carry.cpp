// task: cumsum
// expect: wrong
// kind: last_block
// why: blocks of 512; the block of one element at the end gets no carry

constexpr int64_t BLOCK = 512;

extern "C" void launch(const float* x, float* out) {
  for (int64_t r = 0; r < x_d0; r++) {
    double carry = 0.0;
    for (int64_t start = 0; start < x_d1; start += BLOCK) {
      const int64_t end = start + BLOCK < x_d1 ? start + BLOCK : x_d1;
      double sum = end - start == BLOCK ? carry : 0.0;
      for (int64_t i = start; i < end; i++) out[r * x_d1 + i] = (float)(sum += x[r * x_d1 + i]);
      carry = sum;
    }
  }
}
