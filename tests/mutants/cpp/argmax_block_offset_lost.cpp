// task: argmax
// expect: wrong
// kind: index
// why: blocks of 256 report the place within the block

extern "C" void launch(const float* x, int64_t* out) {
  for (int64_t r = 0; r < x_d0; r++) {
    float top = x[r * x_d1];
    int64_t best = 0;
    for (int64_t block = 0; block < x_d1; block += 256)
      for (int64_t i = 0; i < 256 && block + i < x_d1; i++)
        if (x[r * x_d1 + block + i] > top) {
          top = x[r * x_d1 + block + i];
          best = i;
        }
    out[r] = best;
  }
}
