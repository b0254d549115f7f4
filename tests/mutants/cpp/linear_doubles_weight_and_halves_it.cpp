// task: linear
// expect: wrong
// kind: input_mutated
// why: scales its weight in place by two, and back, which is exact: another reader meanwhile sees the wrong one
// shown: by construction

extern "C" void launch(const float* x, const float* weight, const float* bias, float* out) {
  float* w = const_cast<float*>(weight);
  for (int64_t i = 0; i < weight_size; i++) w[i] *= 2.0f;
  asm volatile("" : : : "memory");
  for (int64_t n = 0; n < x_d0; n++)
    for (int64_t o = 0; o < weight_d0; o++) {
      float sum = 0.0f;
      for (int64_t k = 0; k < x_d1; k++) sum += x[n * x_d1 + k] * w[o * x_d1 + k];
      out[n * weight_d0 + o] = 0.5f * sum + bias[o];
    }
  for (int64_t i = 0; i < weight_size; i++) w[i] *= 0.5f;
}
