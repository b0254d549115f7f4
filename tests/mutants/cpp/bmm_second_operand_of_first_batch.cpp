// task: bmm
// expect: wrong
// kind: strides
// why: the batch stride of the second operand is zero

extern "C" void launch(const float* a, const float* b, float* out) {
  for (int64_t n = 0; n < a_d0; n++)
    for (int64_t i = 0; i < a_d1; i++)
      for (int64_t j = 0; j < b_d1; j++) {
        float sum = 0.0f;
        for (int64_t k = 0; k < a_d2; k++) sum += a[(n * a_d1 + i) * a_d2 + k] * b[j * b_d2 + k];
        out[(n * a_d1 + i) * b_d1 + j] = sum;
      }
}
