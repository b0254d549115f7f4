// task: rmsnorm
// expect: right
// kind: fast_math
// why: an inverse root from the bits of a float and three steps of Newton's

#include <cstring>

static float inverse_root(float v) {
  int32_t bits;
  float y;
  std::memcpy(&bits, &v, 4);
  bits = 0x5f3759df - (bits >> 1);
  std::memcpy(&y, &bits, 4);
  for (int step = 0; step < 3; step++) y *= 1.5f - 0.5f * v * y * y;
  return y;
}

extern "C" void launch(const float* x, const float* weight, float* out) {
  for (int64_t r = 0; r < x_d0; r++) {
    const float* p = x + r * x_d1;
    float squares = 0.0f;
    for (int64_t i = 0; i < x_d1; i++) squares += p[i] * p[i];
    const float scale = inverse_root(squares / x_d1 + 1e-6f);
    for (int64_t i = 0; i < x_d1; i++) out[r * x_d1 + i] = p[i] * scale * weight[i];
  }
}
