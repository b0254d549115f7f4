// task: linear
// expect: wrong
// kind: bias
// why: the bias is not used

extern "C" void launch(const float* x, const float* weight, const float* bias, float* out) {
  (void)bias;
  for (int64_t n = 0; n < x_d0; n++)
    for (int64_t o = 0; o < weight_d0; o++) {
      double sum = 0.0;
      for (int64_t k = 0; k < x_d1; k++) sum += (double)x[n * x_d1 + k] * weight[o * x_d1 + k];
      out[n * weight_d0 + o] = (float)sum;
    }
}
