// task: distances
// expect: wrong
// kind: cancellation
// why: squares less twice the product, in float: the zeros of the diagonal come out as thousandths

#include <cmath>

extern "C" void launch(const float* x, float* out) {
  float square[x_d0];
  for (int64_t i = 0; i < x_d0; i++) {
    float s0 = 0.0f, s1 = 0.0f;
    for (int64_t k = 0; k < x_d1; k += 2) {
      s0 += x[i * x_d1 + k] * x[i * x_d1 + k];
      s1 += x[i * x_d1 + k + 1] * x[i * x_d1 + k + 1];
    }
    square[i] = s0 + s1;
  }
  for (int64_t i = 0; i < x_d0; i++)
    for (int64_t j = 0; j < x_d0; j++) {
      float product = 0.0f;
      for (int64_t k = 0; k < x_d1; k++) product += x[i * x_d1 + k] * x[j * x_d1 + k];
      out[i * x_d0 + j] = std::sqrt(std::fabs(square[i] + square[j] - 2.0f * product));
    }
}
