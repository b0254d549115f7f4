// task: prefix_product
// expect: right
// kind: fast_math
// why: a product as the exponential of a sum of logarithms, in doubles
// note: right for positive inputs alone, which the task draws and KernelBench asks for; the judge draws others too

#include <cmath>

extern "C" void launch(const float* x, float* out) {
  for (int64_t r = 0; r < x_d0; r++) {
    double sum = 0.0;
    for (int64_t i = 0; i < x_d1; i++) out[r * x_d1 + i] = (float)std::exp(sum += std::log((double)x[r * x_d1 + i]));
  }
}
