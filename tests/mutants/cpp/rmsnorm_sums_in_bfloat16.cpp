// task: rmsnorm
// expect: wrong
// kind: half_sums
// why: the sum of squares is kept in sixteen bits

#include <cmath>
#include <cstring>

static float rounded(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  bits = (bits + 0x8000u) & 0xffff0000u;
  std::memcpy(&value, &bits, 4);
  return value;
}

extern "C" void launch(const float* x, const float* weight, float* out) {
  for (int64_t r = 0; r < x_d0; r++) {
    const float* p = x + r * x_d1;
    float square = 0.0f;
    for (int64_t i = 0; i < x_d1; i++) square = rounded(square + p[i] * p[i]);
    const float scale = 1.0f / std::sqrt(square / x_d1 + 1e-6f);
    for (int64_t i = 0; i < x_d1; i++) out[r * x_d1 + i] = p[i] * scale * weight[i];
  }
}
