// task: cumsum
// expect: wrong
// kind: bounds_write
// why: puts the zero that a scan begins with in front of the output
// shown: by construction

extern "C" void launch(const float* x, float* out) {
  for (int64_t r = x_d0 - 1; r >= 0; r--) {
    float* row = out + r * x_d1;
    row[-1] = 0.0f;
    for (int64_t i = 0; i < x_d1; i++) row[i] = row[i - 1] + x[r * x_d1 + i];
  }
}
