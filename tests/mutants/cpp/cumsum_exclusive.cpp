// task: cumsum
// expect: wrong
// kind: formula
// why: the sum is written before its own element is added

extern "C" void launch(const float* x, float* out) {
  for (int64_t r = 0; r < x_d0; r++) {
    float sum = 0.0f;
    for (int64_t i = 0; i < x_d1; i++) {
      out[r * x_d1 + i] = sum;
      sum += x[r * x_d1 + i];
    }
  }
}
