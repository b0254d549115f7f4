// task: gelu_bias
// expect: wrong
// kind: formula
// why: the approximation by tanh, where the task has the exact function

#include <cmath>

extern "C" void launch(const float* x, const float* bias, float* out) {
  for (int64_t i = 0; i < x_size; i++) {
    const float v = x[i] + bias[i % x_d1];
    out[i] = 0.5f * v * (1.0f + std::tanh(0.7978845608f * (v + 0.044715f * v * v * v)));
  }
}
