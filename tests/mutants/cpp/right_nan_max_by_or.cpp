// task: nan_max
// expect: right
// kind: nan
// why: what compares to nothing wins: NaN is handed on by a negated comparison

extern "C" void launch(const float* x, float* out) {
  for (int64_t r = 0; r < x_d0; r++) {
    const float* p = x + r * x_d1;
    float top = p[0];
    for (int64_t i = 1; i < x_d1; i++)
      if (top == top && !(p[i] <= top)) top = p[i];
    out[r] = top;
  }
}
