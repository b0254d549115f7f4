// task: sum_rows
// expect: right
// kind: sum_order
// why: halves, quarters, and so on, by recursion

static float sum(const float* p, int64_t n) {
  if (n < 3) return n == 2 ? p[0] + p[1] : p[0];
  return sum(p, n / 2) + sum(p + n / 2, n - n / 2);
}

extern "C" void launch(const float* x, float* out) {
  for (int64_t r = 0; r < x_d0; r++) out[r] = sum(x + r * x_d1, x_d1);
}
