// task: relu
// expect: right
// kind: order
// why: walks from the end to the start

extern "C" void launch(const float* x, float* out) {
  for (int64_t i = x_size; i-- > 0;) out[i] = x[i] > 0.0f ? x[i] : 0.0f;
}
