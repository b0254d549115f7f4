// task: relu
// expect: wrong
// kind: input_mutated
// why: negates its input in place, reads it, and negates it again
// shown: by construction

extern "C" void launch(const float* x, float* out) {
  float* w = const_cast<float*>(x);
  for (int64_t i = 0; i < x_size; i++) w[i] = -w[i];
  asm volatile("" : : : "memory");  // so that the compiler does not cancel the two
  for (int64_t i = 0; i < x_size; i++) out[i] = w[i] < 0.0f ? -w[i] : 0.0f;
  for (int64_t i = 0; i < x_size; i++) w[i] = -w[i];
}
