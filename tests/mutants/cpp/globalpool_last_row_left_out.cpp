// task: globalpool
// expect: wrong
// kind: last_block
// why: sums all rows of a plane but the last, and divides by their number

extern "C" void launch(const float* x, float* out) {
  for (int64_t p = 0; p < x_d0 * x_d1; p++) {
    float sum = 0.0f;
    for (int64_t i = 0; i < (x_d2 - 1) * x_d3; i++) sum += x[p * x_d2 * x_d3 + i];
    out[p] = sum / ((x_d2 - 1) * x_d3);
  }
}
