// task: batchnorm
// expect: wrong
// kind: last_block
// why: the last image of the batch is left out of the statistics and normalised by those of the others

#include <cmath>

extern "C" void launch(const float* x, const float* weight, const float* bias, float* out) {
  constexpr int64_t plane = x_d2 * x_d3, counted = x_d0 - 1;
  for (int64_t c = 0; c < x_d1; c++) {
    double mean = 0.0, square = 0.0;
    for (int64_t n = 0; n < counted; n++)
      for (int64_t i = 0; i < plane; i++) {
        const double v = x[(n * x_d1 + c) * plane + i];
        mean += v;
        square += v * v;
      }
    mean /= counted * plane;
    const double scale = weight[c] / std::sqrt(square / (counted * plane) - mean * mean + 1e-5);
    for (int64_t n = 0; n < x_d0; n++)
      for (int64_t i = 0; i < plane; i++) {
        const int64_t at = (n * x_d1 + c) * plane + i;
        out[at] = (float)((x[at] - mean) * scale + bias[c]);
      }
  }
}
