// task: log_signed
// expect: right
// kind: nan
// why: makes its own NaN, of another sign and payload than the library's

#include <cmath>
#include <cstring>

extern "C" void launch(const float* x, float* out) {
  const uint32_t bits = 0x7fc12345u;
  float nothing;
  std::memcpy(&nothing, &bits, 4);
  for (int64_t i = 0; i < x_size; i++) out[i] = x[i] < 0.0f ? nothing : std::log2(x[i]) * 0.69314718056f;
}
