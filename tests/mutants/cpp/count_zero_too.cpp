// task: count
// expect: wrong
// kind: edge
// why: counts zeros as well

extern "C" void launch(const float* x, int64_t* out) {
  for (int64_t r = 0; r < x_d0; r++) {
    int64_t n = 0;
    for (int64_t i = 0; i < x_d1; i++) n += !(x[r * x_d1 + i] < 0.0f);
    out[r] = n;
  }
}
