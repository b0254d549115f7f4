// task: rope
// expect: wrong
// kind: index
// why: turns neighbours, the task turns the two halves

extern "C" void launch(const float* x, const float* cos, const float* sin, float* out) {
  for (int64_t r = 0; r < x_d0 * x_d1; r++)
    for (int64_t i = 0; i < cos_d1; i++) {
      const float a = x[r * x_d2 + 2 * i], b = x[r * x_d2 + 2 * i + 1];
      const float c = cos[r % x_d1 * cos_d1 + i], s = sin[r % x_d1 * cos_d1 + i];
      out[r * x_d2 + 2 * i] = a * c - b * s;
      out[r * x_d2 + 2 * i + 1] = b * c + a * s;
    }
}
