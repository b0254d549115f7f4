// task: avgpool
// expect: wrong
// kind: padding
// why: divides by the number of pixels inside the image and not by nine

extern "C" void launch(const float* x, float* out) {
  for (int64_t p = 0; p < x_d0 * x_d1; p++)
    for (int64_t i = 0; i < out_d2; i++)
      for (int64_t j = 0; j < out_d3; j++) {
        float sum = 0.0f;
        int count = 0;
        for (int64_t h = 2 * i - 1; h <= 2 * i + 1; h++)
          for (int64_t w = 2 * j - 1; w <= 2 * j + 1; w++)
            if (h >= 0 && h < x_d2 && w >= 0 && w < x_d3) {
              sum += x[(p * x_d2 + h) * x_d3 + w];
              count++;
            }
        out[(p * out_d2 + i) * out_d3 + j] = sum / count;
      }
}
