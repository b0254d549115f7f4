// task: sum_rows
// expect: right
// kind: sum_order
// why: a sum after Kahan

extern "C" void launch(const float* x, float* out) {
  for (int64_t r = 0; r < x_d0; r++) {
    float sum = 0.0f, lost = 0.0f;
    for (int64_t i = 0; i < x_d1; i++) {
      const float term = x[r * x_d1 + i] - lost, next = sum + term;
      lost = (next - sum) - term;
      sum = next;
    }
    out[r] = sum;
  }
}
