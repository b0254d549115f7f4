// task: sum_rows
// expect: wrong
// kind: tail
// why: four accumulators; 7703 is three more than a multiple of four

extern "C" void launch(const float* x, float* out) {
  for (int64_t r = 0; r < x_d0; r++) {
    const float* p = x + r * x_d1;
    float s0 = 0.0f, s1 = 0.0f, s2 = 0.0f, s3 = 0.0f;
    for (int64_t i = 0; i < x_d1 / 4; i++) {
      s0 += p[4 * i];
      s1 += p[4 * i + 1];
      s2 += p[4 * i + 2];
      s3 += p[4 * i + 3];
    }
    out[r] = (s0 + s1) + (s2 + s3);
  }
}
