// task: conv2d
// expect: right
// kind: fast_math
// why: Winograd's F(2, 3) along each row

static float pixel(const float* plane, int64_t h, int64_t w) {
  return h >= 0 && h < x_d2 && w >= 0 && w < x_d3 ? plane[h * x_d3 + w] : 0.0f;
}

extern "C" void launch(const float* x, const float* conv_weight, const float* conv_bias, float* out) {
  for (int64_t n = 0; n < x_d0; n++)
    for (int64_t o = 0; o < out_d1; o++)
      for (int64_t i = 0; i < out_d2; i++)
        for (int64_t j = 0; j < out_d3; j += 2) {
          float m0 = 0.0f, m1 = 0.0f, m2 = 0.0f, m3 = 0.0f;
          for (int64_t c = 0; c < x_d1; c++)
            for (int64_t k = 0; k < 3; k++) {
              const float* plane = x + (n * x_d1 + c) * x_d2 * x_d3;
              const float* g = conv_weight + ((o * x_d1 + c) * 3 + k) * 3;
              const float d0 = pixel(plane, i + k - 1, j - 1), d1 = pixel(plane, i + k - 1, j);
              const float d2 = pixel(plane, i + k - 1, j + 1), d3 = pixel(plane, i + k - 1, j + 2);
              m0 += (d0 - d2) * g[0];
              m1 += (d1 + d2) * 0.5f * (g[0] + g[1] + g[2]);
              m2 += (d2 - d1) * 0.5f * (g[0] - g[1] + g[2]);
              m3 += (d1 - d3) * g[2];
            }
          float* row = out + ((n * out_d1 + o) * out_d2 + i) * out_d3;
          row[j] = m0 + m1 + m2 + conv_bias[o];
          if (j + 1 < out_d3) row[j + 1] = m1 - m2 - m3 + conv_bias[o];
        }
}
