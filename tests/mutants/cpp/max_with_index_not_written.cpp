// task: max_with_index
// expect: wrong
// kind: uninitialised
// why: the index is written only when a larger value comes after the first

extern "C" void launch(const float* x, float* out0, int64_t* out1) {
  for (int64_t n = 0; n < x_d0; n++)
    for (int64_t c = 0; c < x_d2; c++) {
      const float* p = x + n * x_d1 * x_d2 + c;
      float top = p[0];
      for (int64_t i = 1; i < x_d1; i++)
        if (p[i * x_d2] > top) {
          top = p[i * x_d2];
          out1[n * x_d2 + c] = i;
        }
      out0[n * x_d2 + c] = top;
    }
}
