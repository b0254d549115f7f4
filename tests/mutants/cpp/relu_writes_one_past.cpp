// task: relu
// expect: wrong
// kind: bounds_write
// why: the loop runs to i <= size: one float is read and written past the end
// shown: by construction

extern "C" void launch(const float* x, float* out) {
  for (int64_t i = 0; i <= x_size; i++) out[i] = x[i] > 0.0f ? x[i] : 0.0f;
}
