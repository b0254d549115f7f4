// task: matmul
// expect: wrong
// kind: uninitialised
// why: adds to an output that nobody has zeroed

extern "C" void launch(const float* a, const float* b, float* out) {
  for (int64_t i = 0; i < a_d0; i++)
    for (int64_t k = 0; k < a_d1; k++)
      for (int64_t j = 0; j < b_d1; j++) out[i * b_d1 + j] += a[i * a_d1 + k] * b[k * b_d1 + j];
}
