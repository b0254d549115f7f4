// task: maxpool
// expect: wrong
// kind: drawn_values
// why: every maximum starts at zero, right for positive inputs only

extern "C" void launch(const float* x, float* out) {
  for (int64_t p = 0; p < x_d0 * x_d1; p++)
    for (int64_t i = 0; i < out_d2; i++)
      for (int64_t j = 0; j < out_d3; j++) {
        float top = 0.0f;
        for (int64_t h = 2 * i - 1; h <= 2 * i + 1; h++)
          for (int64_t w = 2 * j - 1; w <= 2 * j + 1; w++) {
            if (h < 0 || h >= x_d2 || w < 0 || w >= x_d3) continue;
            const float value = x[(p * x_d2 + h) * x_d3 + w];
            top = value > top ? value : top;
          }
        out[(p * out_d2 + i) * out_d3 + j] = top;
      }
}
