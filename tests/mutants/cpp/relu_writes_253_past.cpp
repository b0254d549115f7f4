// task: relu
// expect: wrong
// kind: bounds_write
// why: blocks of 416 without a guard: 253 floats past the end
// shown: by construction

extern "C" void launch(const float* x, float* out) {
  const int64_t blocks = (x_size + 415) / 416;
  for (int64_t b = 0; b < blocks; b++)
    for (int64_t t = 0; t < 416; t++) {
      const int64_t i = b * 416 + t;
      out[i] = x[i] > 0.0f ? x[i] : 0.0f;
    }
}
