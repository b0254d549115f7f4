// task: distances
// expect: right
// kind: order
// why: computes one half and mirrors it, reading its own output back

#include <cmath>

extern "C" void launch(const float* x, float* out) {
  for (int64_t i = 0; i < x_d0; i++) {
    for (int64_t j = 0; j < i; j++) out[i * x_d0 + j] = out[j * x_d0 + i];
    for (int64_t j = i; j < x_d0; j++) {
      float sum = 0.0f;
      for (int64_t k = 0; k < x_d1; k++) sum += (x[i * x_d1 + k] - x[j * x_d1 + k]) * (x[i * x_d1 + k] - x[j * x_d1 + k]);
      out[i * x_d0 + j] = std::sqrt(sum);
    }
  }
}
