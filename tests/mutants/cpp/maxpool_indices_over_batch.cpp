// task: maxpool_indices
// expect: wrong
// kind: index
// why: indices count from the start of the tensor and not of their plane

extern "C" void launch(const float* x, float* out0, int64_t* out1) {
  for (int64_t p = 0; p < x_d0 * x_d1; p++)
    for (int64_t i = 0; i < out0_d2; i++)
      for (int64_t j = 0; j < out0_d3; j++) {
        int64_t best = (p * x_d2 + 2 * i) * x_d3 + 2 * j;
        for (int64_t k = 1; k < 4; k++) {
          const int64_t at = (p * x_d2 + 2 * i + k / 2) * x_d3 + 2 * j + k % 2;
          if (x[at] > x[best]) best = at;
        }
        out0[(p * out0_d2 + i) * out0_d3 + j] = x[best];
        out1[(p * out0_d2 + i) * out0_d3 + j] = best;
      }
}
