// task: cummax
// expect: wrong
// kind: drawn_values
// why: assumes that no row begins with a negative value

extern "C" void launch(const float* x, float* out) {
  for (int64_t r = 0; r < x_d0; r++) {
    float top = 0.0f;
    for (int64_t i = 0; i < x_d1; i++) {
      if (x[r * x_d1 + i] > top) top = x[r * x_d1 + i];
      out[r * x_d1 + i] = top;
    }
  }
}
