// task: stats
// expect: wrong
// kind: edge
// why: the second output, the maximum, never looks at the last column

extern "C" void launch(const float* x, float* out0, float* out1, float* out2) {
  for (int64_t r = 0; r < x_d0; r++) {
    const float* p = x + r * x_d1;
    float low = p[0], high = p[0], sum = 0.0f;
    for (int64_t i = 0; i < x_d1; i++) {
      if (p[i] < low) low = p[i];
      if (i < x_d1 - 1 && p[i] > high) high = p[i];
      sum += p[i];
    }
    out0[r] = low, out1[r] = high, out2[r] = sum / x_d1;
  }
}
