// task: conv_transpose
// expect: wrong
// kind: edge
// why: takes the output padding for rows and columns of nothing but bias

extern "C" void launch(const float* x, const float* conv_weight, const float* conv_bias, float* out) {
  for (int64_t i = 0; i < out_size; i++) out[i] = conv_bias[i / (out_d2 * out_d3) % out_d1];
  for (int64_t n = 0; n < x_d0; n++)
    for (int64_t c = 0; c < x_d1; c++)
      for (int64_t h = 0; h < x_d2; h++)
        for (int64_t w = 0; w < x_d3; w++)
          for (int64_t o = 0; o < out_d1; o++)
            for (int64_t k = 0; k < 3; k++)
              for (int64_t l = 0; l < 3; l++) {
                const int64_t i = 2 * h + k - 1, j = 2 * w + l - 1;
                if (i < 0 || i >= out_d2 - 1 || j < 0 || j >= out_d3 - 1) continue;
                out[((n * out_d1 + o) * out_d2 + i) * out_d3 + j] +=
                    x[((n * x_d1 + c) * x_d2 + h) * x_d3 + w] * conv_weight[((c * out_d1 + o) * 3 + k) * 3 + l];
              }
}
