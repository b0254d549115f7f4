// task: batchnorm_eval
// expect: wrong
// kind: formula
// why: folds the mean into the bias without the scale that belongs to it

#include <cmath>

extern "C" void launch(const float* x, const float* weight, const float* bias, const float* mean, const float* var,
                       float* out) {
  float scale[weight_d0], shift[weight_d0];
  for (int64_t c = 0; c < weight_d0; c++) {
    scale[c] = weight[c] / std::sqrt(var[c] + 1e-2f);
    shift[c] = bias[c] - mean[c];
  }
  for (int64_t i = 0; i < x_size; i++) {
    const int64_t c = i / (x_d2 * x_d3) % x_d1;
    out[i] = x[i] * scale[c] + shift[c];
  }
}
