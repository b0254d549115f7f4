// task: argmax_ties
// expect: right
// kind: order
// why: walks backwards and lets equals win, so that the first one stays

extern "C" void launch(const float* x, int64_t* out) {
  for (int64_t r = 0; r < x_d0; r++) {
    int64_t best = x_d1 - 1;
    for (int64_t i = x_d1 - 1; i >= 0; i--)
      if (!(x[r * x_d1 + i] < x[r * x_d1 + best])) best = i;
    out[r] = best;
  }
}
