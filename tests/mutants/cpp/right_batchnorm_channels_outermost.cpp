// task: batchnorm
// expect: right
// kind: strided_reads
// why: moves the channel to the front in scratch memory, then works on rows

#include <cmath>
#include <vector>

extern "C" void launch(const float* x, const float* weight, const float* bias, float* out) {
  constexpr int64_t plane = x_d2 * x_d3, size = x_d0 * plane;
  std::vector<float> row(size);
  for (int64_t c = 0; c < x_d1; c++) {
    for (int64_t i = 0; i < size; i++) row[i] = x[(i % x_d0 * x_d1 + c) * plane + i / x_d0];
    double mean = 0.0, var = 0.0;
    for (float v : row) mean += v;
    mean /= size;
    for (float v : row) var += (v - mean) * (v - mean);
    const double scale = weight[c] / std::sqrt(var / size + 1e-5);
    for (int64_t i = 0; i < size; i++) out[(i % x_d0 * x_d1 + c) * plane + i / x_d0] = (float)((row[i] - mean) * scale + bias[c]);
  }
}
