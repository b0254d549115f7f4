// task: tril
// expect: wrong
// kind: edge
// why: cuts at the main diagonal, the task one above

extern "C" void launch(const float* x, float* out) {
  for (int64_t p = 0; p < x_d0; p++)
    for (int64_t i = 0; i < x_d1; i++)
      for (int64_t j = 0; j < x_d2; j++) {
        const int64_t at = (p * x_d1 + i) * x_d2 + j;
        out[at] = j <= i ? x[at] : 0.0f;
      }
}
