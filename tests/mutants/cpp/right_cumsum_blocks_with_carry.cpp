// task: cumsum
// expect: right
// kind: sum_order
// why: scans blocks of 128 on their own, then adds to each what stands before it

extern "C" void launch(const float* x, float* out) {
  for (int64_t r = 0; r < x_d0; r++) {
    float* row = out + r * x_d1;
    for (int64_t i = 0; i < x_d1; i++) row[i] = x[r * x_d1 + i] + (i % 128 ? row[i - 1] : 0.0f);
    for (int64_t start = 128; start < x_d1; start += 128)
      for (int64_t i = start; i < x_d1 && i < start + 128; i++) row[i] += row[start - 1];
  }
}
