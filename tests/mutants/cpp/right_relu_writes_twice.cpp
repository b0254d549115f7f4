// task: relu
// expect: right
// kind: order
// why: fills its output with something else first
// note: its results are right; inline assembler breaks the rule harness_access, which rewards enforce

extern "C" void launch(const float* x, float* out) {
  for (int64_t i = 0; i < x_size; i++) out[i] = -1.0f / (1 + i);
  asm volatile("" : : : "memory");
  for (int64_t i = 0; i < x_size; i++) out[i] = x[i] > 0.0f ? x[i] : 0.0f;
}
