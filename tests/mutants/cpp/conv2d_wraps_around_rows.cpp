// task: conv2d
// expect: wrong
// kind: edge
// why: checks rows and not columns: beyond the right edge it reads the next row's first pixel

extern "C" void launch(const float* x, const float* conv_weight, const float* conv_bias, float* out) {
  for (int64_t n = 0; n < x_d0; n++)
    for (int64_t o = 0; o < out_d1; o++)
      for (int64_t i = 0; i < out_d2; i++)
        for (int64_t j = 0; j < out_d3; j++) {
          float sum = conv_bias[o];
          for (int64_t c = 0; c < x_d1; c++)
            for (int64_t k = -1; k <= 1; k++)
              for (int64_t l = -1; l <= 1; l++) {
                const int64_t at = (i + k) * x_d3 + j + l;
                if (at < 0 || at >= x_d2 * x_d3 || i + k < 0 || i + k >= x_d2) continue;
                sum += x[(n * x_d1 + c) * x_d2 * x_d3 + at] * conv_weight[(o * x_d1 + c) * 9 + (k + 1) * 3 + l + 1];
              }
          out[((n * out_d1 + o) * out_d2 + i) * out_d3 + j] = sum;
        }
}
