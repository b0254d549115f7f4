// task: layernorm_shifted
// expect: right
// kind: sum_order
// why: one pass over squares, of values less the first one of their row, so that nothing cancels

#include <cmath>

extern "C" void launch(const float* x, float* out) {
  for (int64_t r = 0; r < x_d0; r++) {
    const float* p = x + r * x_d1;
    const float base = p[0];
    float sum = 0.0f, squares = 0.0f;
    for (int64_t i = 0; i < x_d1; i++) {
      const float v = p[i] - base;
      sum += v;
      squares += v * v;
    }
    const float mean = sum / x_d1, scale = 1.0f / std::sqrt(squares / x_d1 - mean * mean + 1e-5f);
    for (int64_t i = 0; i < x_d1; i++) out[r * x_d1 + i] = (p[i] - base - mean) * scale;
  }
}
