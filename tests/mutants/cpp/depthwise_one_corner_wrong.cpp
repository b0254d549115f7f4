// task: depthwise
// expect: wrong
// kind: one_element
// why: the last pixel of the last channel of the last image is taken from its neighbour

extern "C" void launch(const float* x, const float* conv_weight, float* out) {
  for (int64_t p = 0; p < x_d0 * x_d1; p++)
    for (int64_t i = 0; i < x_d2; i++)
      for (int64_t j = 0; j < x_d3; j++) {
        float sum = 0.0f;
        for (int64_t k = 0; k < 3; k++)
          for (int64_t l = 0; l < 3; l++) {
            const int64_t h = i + k - 1, w = j + l - 1;
            if (h >= 0 && h < x_d2 && w >= 0 && w < x_d3)
              sum += x[(p * x_d2 + h) * x_d3 + w] * conv_weight[p % x_d1 * 9 + k * 3 + l];
          }
        out[(p * x_d2 + i) * x_d3 + j] = sum;
      }
  out[out_size - 1] = out[out_size - 2];
}
