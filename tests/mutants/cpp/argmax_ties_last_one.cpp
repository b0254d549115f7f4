// task: argmax_ties
// expect: wrong
// kind: drawn_values
// why: of equal values the last one wins, which drawn real numbers never show

extern "C" void launch(const float* x, int64_t* out) {
  for (int64_t r = 0; r < x_d0; r++) {
    int64_t best = 0;
    for (int64_t i = 1; i < x_d1; i++)
      if (x[r * x_d1 + i] >= x[r * x_d1 + best]) best = i;
    out[r] = best;
  }
}
