// task: avgpool
// expect: wrong
// kind: half_sums
// why: multiplies by 0.111 for a ninth

extern "C" void launch(const float* x, float* out) {
  for (int64_t p = 0; p < x_d0 * x_d1; p++)
    for (int64_t i = 0; i < out_d2; i++)
      for (int64_t j = 0; j < out_d3; j++) {
        float sum = 0.0f;
        for (int64_t k = 0; k < 9; k++) {
          const int64_t h = 2 * i + k / 3 - 1, w = 2 * j + k % 3 - 1;
          if (h >= 0 && h < x_d2 && w >= 0 && w < x_d3) sum += x[(p * x_d2 + h) * x_d3 + w];
        }
        out[(p * out_d2 + i) * out_d3 + j] = 0.111f * sum;
      }
}
