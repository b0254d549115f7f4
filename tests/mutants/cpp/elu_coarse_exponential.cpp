// task: elu
// expect: wrong
// kind: half_sums
// why: an exponential made of the bits of a float, right to three percent

#include <cstring>

static float rough_exp(float v) {
  const int32_t bits = (int32_t)(12102203.0f * v + 1064866805.0f);
  float result;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}

extern "C" void launch(const float* x, float* out) {
  for (int64_t i = 0; i < x_size; i++) out[i] = x[i] > 0.0f ? x[i] : 0.7f * (rough_exp(x[i]) - 1.0f);
}
