// task: maxpool
// expect: right
// kind: scratch
// why: maxima of rows into memory on the stack, then of columns

extern "C" void launch(const float* x, float* out) {
  float rows[x_d2][out_d3];
  for (int64_t p = 0; p < x_d0 * x_d1; p++) {
    const float* plane = x + p * x_d2 * x_d3;
    for (int64_t h = 0; h < x_d2; h++)
      for (int64_t j = 0; j < out_d3; j++) {
        float top = plane[h * x_d3 + 2 * j];
        if (2 * j + 1 < x_d3 && plane[h * x_d3 + 2 * j + 1] > top) top = plane[h * x_d3 + 2 * j + 1];
        if (j > 0 && plane[h * x_d3 + 2 * j - 1] > top) top = plane[h * x_d3 + 2 * j - 1];
        rows[h][j] = top;
      }
    for (int64_t i = 0; i < out_d2; i++)
      for (int64_t j = 0; j < out_d3; j++) {
        float top = rows[2 * i][j];
        if (2 * i + 1 < x_d2 && rows[2 * i + 1][j] > top) top = rows[2 * i + 1][j];
        if (i > 0 && rows[2 * i - 1][j] > top) top = rows[2 * i - 1][j];
        out[(p * out_d2 + i) * out_d3 + j] = top;
      }
  }
}
