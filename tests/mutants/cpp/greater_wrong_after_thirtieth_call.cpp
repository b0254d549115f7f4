// task: greater
// expect: wrong
// kind: flaky
// why: from the thirtieth call on a counter has run over its bits and equal values count as greater
// calls: 40

extern "C" void launch(const float* x, const float* y, bool* out) {
  static unsigned calls = 0;
  calls++;
  const bool worn_out = (calls & 31u) >= 30u;
  for (int64_t i = 0; i < x_size; i++) out[i] = worn_out ? x[i] >= y[i] : x[i] > y[i];
}
