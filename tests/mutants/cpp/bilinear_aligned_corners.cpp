// task: bilinear
// expect: wrong
// kind: edge
// why: maps corners to corners

extern "C" void launch(const float* x, float* out) {
  for (int64_t p = 0; p < x_d0 * x_d1; p++)
    for (int64_t i = 0; i < out_d2; i++)
      for (int64_t j = 0; j < out_d3; j++) {
        const float h = i * (float)(x_d2 - 1) / (out_d2 - 1), w = j * (float)(x_d3 - 1) / (out_d3 - 1);
        const int64_t h0 = (int64_t)h, w0 = (int64_t)w;
        const int64_t h1 = h0 + 1 < x_d2 ? h0 + 1 : h0, w1 = w0 + 1 < x_d3 ? w0 + 1 : w0;
        const float a = h - h0, b = w - w0;
        const float* s = x + p * x_d2 * x_d3;
        out[(p * out_d2 + i) * out_d3 + j] = (1 - a) * ((1 - b) * s[h0 * x_d3 + w0] + b * s[h0 * x_d3 + w1]) +
                                             a * ((1 - b) * s[h1 * x_d3 + w0] + b * s[h1 * x_d3 + w1]);
      }
}
