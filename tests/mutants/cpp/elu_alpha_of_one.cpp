// task: elu
// expect: wrong
// kind: formula
// why: takes alpha for one

#include <cmath>

extern "C" void launch(const float* x, float* out) {
  for (int64_t i = 0; i < x_size; i++) out[i] = x[i] > 0.0f ? x[i] : std::expm1(x[i]);
}
