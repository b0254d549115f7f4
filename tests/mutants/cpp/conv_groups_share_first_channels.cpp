// task: conv_groups
// expect: wrong
// kind: index
// why: every group reads the channels of the first

extern "C" void launch(const float* x, const float* conv_weight, float* out) {
  for (int64_t n = 0; n < x_d0; n++)
    for (int64_t o = 0; o < out_d1; o++)
      for (int64_t i = 0; i < out_d2; i++)
        for (int64_t j = 0; j < out_d3; j++) {
          float sum = 0.0f;
          for (int64_t c = 0; c < conv_weight_d1; c++)
            for (int64_t k = 0; k < 3; k++)
              for (int64_t l = 0; l < 3; l++) {
                const int64_t h = 2 * i + 2 * k - 2, w = 2 * j + 2 * l - 2;
                if (h < 0 || h >= x_d2 || w < 0 || w >= x_d3) continue;
                sum += x[((n * x_d1 + c) * x_d2 + h) * x_d3 + w] *
                       conv_weight[((o * conv_weight_d1 + c) * 3 + k) * 3 + l];
              }
          out[((n * out_d1 + o) * out_d2 + i) * out_d3 + j] = sum;
        }
}
