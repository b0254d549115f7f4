// task: conv3d
// expect: wrong
// kind: padding
// why: in depth it pads at the end only: two planes behind, none before

extern "C" void launch(const float* x, const float* conv_weight, float* out) {
  for (int64_t o = 0; o < out_d1; o++)
    for (int64_t d = 0; d < out_d2; d++)
      for (int64_t i = 0; i < out_d3; i++)
        for (int64_t j = 0; j < out_d4; j++) {
          float sum = 0.0f;
          for (int64_t c = 0; c < x_d1; c++)
            for (int64_t k = 0; k < 27; k++) {
              const int64_t z = d + k / 9, h = i + k / 3 % 3 - 1, w = j + k % 3 - 1;
              if (z >= x_d2 || h < 0 || h >= x_d3 || w < 0 || w >= x_d4) continue;
              sum += x[((c * x_d2 + z) * x_d3 + h) * x_d4 + w] * conv_weight[(o * x_d1 + c) * 27 + k];
            }
          out[((o * out_d2 + d) * out_d3 + i) * out_d4 + j] = sum;
        }
}
