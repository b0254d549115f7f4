// task: softmax_mid
// expect: right
// kind: fast_math
// why: exponentials as powers of two by a polynomial of degree five

#include <cmath>
#include <cstring>

static float power_of_two(float v) {
  const float whole = std::floor(v), part = v - whole;
  const float series =
      1.0f + part * (0.69314718f +
                     part * (0.24022651f + part * (0.05550411f + part * (0.00961812f + part * (0.00133336f + part * 0.000154f)))));
  int32_t bits = ((int32_t)whole + 127) << 23;
  float scale;
  std::memcpy(&scale, &bits, 4);
  return scale * series;
}

extern "C" void launch(const float* x, float* out) {
  for (int64_t b = 0; b < x_d0; b++)
    for (int64_t c = 0; c < x_d2; c++) {
      const int64_t at = b * x_d1 * x_d2 + c;
      float sum = 0.0f;
      for (int64_t i = 0; i < x_d1; i++) sum += out[at + i * x_d2] = power_of_two(1.44269504f * x[at + i * x_d2]);
      for (int64_t i = 0; i < x_d1; i++) out[at + i * x_d2] /= sum;
    }
}
