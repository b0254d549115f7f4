// task: normalize
// expect: wrong
// kind: one_size
// why: written for 64 channels and given 63: sums run into the next image, and past the last one

#include <cmath>

constexpr int64_t CHANNELS = 64;

extern "C" void launch(const float* x, float* out) {
  for (int64_t n = 0; n < x_d0; n++)
    for (int64_t c = 0; c < x_d2; c++) {
      const float* p = x + n * x_d1 * x_d2 + c;
      float square = 0.0f;
      for (int64_t i = 0; i < CHANNELS; i++)
        if (p + i * x_d2 < x + x_size) square += p[i * x_d2] * p[i * x_d2];
      const float scale = 1.0f / std::fmax(std::sqrt(square), 1e-12f);
      for (int64_t i = 0; i < x_d1; i++) out[(n * x_d1 + i) * x_d2 + c] = p[i * x_d2] * scale;
    }
}
