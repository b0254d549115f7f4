// task: softmax
// expect: wrong
// kind: axis
// why: one sum over all rows

#include <cmath>

extern "C" void launch(const float* x, float* out) {
  double sum = 0.0;
  for (int64_t i = 0; i < x_size; i++) sum += std::exp((double)x[i]);
  for (int64_t i = 0; i < x_size; i++) out[i] = (float)(std::exp((double)x[i]) / sum);
}
