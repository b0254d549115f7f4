// task: in_place
// expect: right
// kind: in_place
// why: the task works in its input, the kernel does not: its answer is the same

extern "C" void launch(const float* x, float* out) {
  for (int64_t i = 0; i < x_size; i++) out[i] = 2.0f * x[i] + 1.0f;
}
