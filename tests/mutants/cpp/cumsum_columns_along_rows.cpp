// task: cumsum_columns
// expect: wrong
// kind: axis
// why: sums along the rows

extern "C" void launch(const float* x, float* out) {
  for (int64_t r = 0; r < x_d0; r++) {
    float sum = 0.0f;
    for (int64_t c = 0; c < x_d1; c++) out[r * x_d1 + c] = sum += x[r * x_d1 + c];
  }
}
