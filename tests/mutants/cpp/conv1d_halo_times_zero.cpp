// task: conv1d
// expect: wrong
// kind: bounds_read
// why: reads the padding from memory and multiplies it by zero: before the first row, behind the last, NaN where such lies there
// shown: by construction

extern "C" void launch(const float* x, const float* conv_weight, const float* conv_bias, float* out) {
  for (int64_t n = 0; n < x_d0; n++)
    for (int64_t o = 0; o < out_d1; o++)
      for (int64_t i = 0; i < out_d2; i++) {
        float sum = conv_bias[o];
        for (int64_t c = 0; c < x_d1; c++)
          for (int64_t k = 0; k < 5; k++) {
            const int64_t at = i + k - 2;
            const float inside = at >= 0 && at < x_d2 ? 1.0f : 0.0f;
            sum += inside * *(const volatile float*)&x[(n * x_d1 + c) * x_d2 + at] * conv_weight[(o * x_d1 + c) * 5 + k];
          }
        out[(n * out_d1 + o) * out_d2 + i] = sum;
      }
}
