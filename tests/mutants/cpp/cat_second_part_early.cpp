// task: cat
// expect: wrong
// kind: strides
// why: the second part begins one row too early and its last row is not written

#include <cstring>

extern "C" void launch(const float* x, const float* y, float* out) {
  for (int64_t n = 0; n < out_d0; n++) {
    float* block = out + n * out_d1 * out_d2;
    std::memcpy(block, x + n * x_d1 * x_d2, x_d1 * x_d2 * sizeof(float));
    std::memcpy(block + (x_d1 - 1) * x_d2, y + n * y_d1 * y_d2, y_d1 * y_d2 * sizeof(float));
    std::memset(block + (out_d1 - 1) * out_d2, 0, out_d2 * sizeof(float));
  }
}
