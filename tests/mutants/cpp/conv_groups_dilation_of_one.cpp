// task: conv_groups
// expect: wrong
// kind: strides
// why: ignores the dilation, with the padding moved so that sizes still fit

extern "C" void launch(const float* x, const float* conv_weight, float* out) {
  constexpr int64_t per_group = out_d1 / 2;
  for (int64_t at = 0; at < out_size; at++) {
    const int64_t j = at % out_d3, i = at / out_d3 % out_d2, o = at / (out_d3 * out_d2) % out_d1;
    const int64_t n = at / (out_d3 * out_d2 * out_d1);
    float sum = 0.0f;
    for (int64_t c = 0; c < 2; c++)
      for (int64_t k = 0; k < 9; k++) {
        const int64_t h = 2 * i + k / 3 - 1, w = 2 * j + k % 3 - 1;
        if (h < 0 || h >= x_d2 || w < 0 || w >= x_d3) continue;
        sum += x[((n * x_d1 + o / per_group * 2 + c) * x_d2 + h) * x_d3 + w] * conv_weight[(o * 2 + c) * 9 + k];
      }
    out[at] = sum;
  }
}
