// task: hinge
// expect: wrong
// kind: drawn_values
// why: takes all labels for plus one

extern "C" void launch(const float* x, const float* y, float* out) {
  (void)y;
  for (int64_t r = 0; r < x_d0; r++) {
    float sum = 0.0f;
    for (int64_t i = 0; i < x_d1; i++) {
      const float margin = 1.0f - x[r * x_d1 + i];
      sum += margin > 0.0f ? margin : 0.0f;
    }
    out[r] = sum / x_d1;
  }
}
