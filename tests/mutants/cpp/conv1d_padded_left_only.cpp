// task: conv1d
// expect: wrong
// kind: padding
// why: all four zeros stand on the left, as for a causal convolution

extern "C" void launch(const float* x, const float* conv_weight, const float* conv_bias, float* out) {
  for (int64_t n = 0; n < x_d0; n++)
    for (int64_t o = 0; o < out_d1; o++) {
      float* row = out + (n * out_d1 + o) * out_d2;
      for (int64_t i = 0; i < out_d2; i++) row[i] = conv_bias[o];
      for (int64_t c = 0; c < x_d1; c++)
        for (int64_t k = 0; k < 5; k++)
          for (int64_t i = 4 - k; i < out_d2; i++)
            row[i] += conv_weight[(o * x_d1 + c) * 5 + k] * x[(n * x_d1 + c) * x_d2 + i + k - 4];
    }
}
