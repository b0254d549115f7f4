// task: cosine
// expect: wrong
// kind: formula
// why: divides by the norm of the first vector twice

#include <cmath>

extern "C" void launch(const float* x, const float* y, float* out) {
  for (int64_t r = 0; r < x_d0; r++) {
    float dot = 0.0f, norm = 0.0f;
    for (int64_t i = 0; i < x_d1; i++) {
      dot += x[r * x_d1 + i] * y[r * x_d1 + i];
      norm += x[r * x_d1 + i] * x[r * x_d1 + i];
    }
    out[r] = dot / norm;
  }
}
