// task: sum_mid
// expect: right
// kind: threads
// why: OpenMP over the outer dimension

extern "C" void launch(const float* x, float* out) {
#pragma omp parallel for collapse(2)
  for (int64_t i = 0; i < x_d0; i++)
    for (int64_t k = 0; k < x_d2; k++) {
      float sum = 0.0f;
      for (int64_t j = 0; j < x_d1; j++) sum += x[(i * x_d1 + j) * x_d2 + k];
      out[i * x_d2 + k] = sum;
    }
}
