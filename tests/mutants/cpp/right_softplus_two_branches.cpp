// task: softplus
// expect: right
// kind: fast_math
// why: a line above twenty, as PyTorch has it, and a logarithm below

#include <cmath>

extern "C" void launch(const float* x, float* out) {
  for (int64_t i = 0; i < x_size; i++) {
    const float v = 40.0f * x[i];
    out[i] = std::fmax(v, 0.0f) + std::log1p(std::exp(-std::fabs(v)));
  }
}
