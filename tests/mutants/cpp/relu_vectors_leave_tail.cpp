// task: relu
// expect: wrong
// kind: tail
// why: whole vectors of eight only; the last three elements stay unwritten

extern "C" void launch(const float* x, float* out) {
  for (int64_t v = 0; v < x_size / 8; v++)
    for (int lane = 0; lane < 8; lane++) {
      const float value = x[v * 8 + lane];
      out[v * 8 + lane] = value > 0.0f ? value : 0.0f;
    }
}
