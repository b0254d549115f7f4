// task: reflect_pad
// expect: wrong
// kind: padding
// why: reflects about the outer side of the edge, which repeats it

static int64_t reflected(int64_t i, int64_t n) {
  if (i < 0) return -i - 1;
  return i < n ? i : 2 * n - 1 - i;
}

extern "C" void launch(const float* x, float* out) {
  for (int64_t c = 0; c < out_d0; c++)
    for (int64_t i = 0; i < out_d1; i++)
      for (int64_t j = 0; j < out_d2; j++)
        out[(c * out_d1 + i) * out_d2 + j] = x[(c * x_d1 + reflected(i - 2, x_d1)) * x_d2 + reflected(j - 3, x_d2)];
}
