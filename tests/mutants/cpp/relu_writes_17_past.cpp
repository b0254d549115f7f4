// task: relu
// expect: wrong
// kind: bounds_write
// why: blocks of twenty, the last one in full: 17 floats past the end of both
// shown: by construction

constexpr int BLOCK = 20;

static void block(const float* x, float* out) {
  for (int i = 0; i < BLOCK; i++) out[i] = x[i] < 0.0f ? 0.0f : x[i];
}

extern "C" void launch(const float* x, float* out) {
  for (int64_t i = 0; i < x_size; i += BLOCK) block(x + i, out + i);
}
