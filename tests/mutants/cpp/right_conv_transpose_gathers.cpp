// task: conv_transpose
// expect: right
// kind: strided_reads
// why: asks for each output which inputs reach it, where others scatter

extern "C" void launch(const float* x, const float* conv_weight, const float* conv_bias, float* out) {
  for (int64_t n = 0; n < x_d0; n++)
    for (int64_t o = 0; o < out_d1; o++)
      for (int64_t i = 0; i < out_d2; i++)
        for (int64_t j = 0; j < out_d3; j++) {
          float sum = conv_bias[o];
          for (int64_t k = (i + 1) % 2; k < 3; k += 2)
            for (int64_t l = (j + 1) % 2; l < 3; l += 2) {
              const int64_t h = (i + 1 - k) / 2, w = (j + 1 - l) / 2;
              if (i + 1 < k || j + 1 < l || h >= x_d2 || w >= x_d3) continue;
              for (int64_t c = 0; c < x_d1; c++)
                sum += x[((n * x_d1 + c) * x_d2 + h) * x_d3 + w] * conv_weight[((c * out_d1 + o) * 3 + k) * 3 + l];
            }
          out[((n * out_d1 + o) * out_d2 + i) * out_d3 + j] = sum;
        }
}
