// task: matmul
// expect: wrong
// kind: strides
// why: reads the right operand in column-major order

extern "C" void launch(const float* a, const float* b, float* out) {
  for (int64_t i = 0; i < a_d0; i++)
    for (int64_t j = 0; j < b_d1; j++) {
      float sum = 0.0f;
      for (int64_t k = 0; k < a_d1; k++) sum += a[i * a_d1 + k] * b[j * b_d0 + k];
      out[i * b_d1 + j] = sum;
    }
}
