// task: bincount
// expect: wrong
// kind: dtype
// why: partial counts of a byte each, merged every 20,000 elements, by when they have run over

extern "C" void launch(const int64_t* x, int64_t* out) {
  for (int64_t i = 0; i < out_size; i++) out[i] = 0;
  for (int64_t start = 0; start < x_size; start += 20000) {
    uint8_t partial[out_size] = {};
    for (int64_t i = start; i < start + 20000 && i < x_size; i++) partial[x[i]]++;
    for (int64_t i = 0; i < out_size; i++) out[i] += partial[i];
  }
}
