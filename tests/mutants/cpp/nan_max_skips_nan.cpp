// task: nan_max
// expect: wrong
// kind: nan
// why: a comparison with NaN is false, so that NaN is skipped where PyTorch hands it on

extern "C" void launch(const float* x, float* out) {
  for (int64_t r = 0; r < x_d0; r++) {
    float top = -3.4e38f;
    for (int64_t i = 0; i < x_d1; i++)
      if (x[r * x_d1 + i] > top) top = x[r * x_d1 + i];
    out[r] = top;
  }
}
