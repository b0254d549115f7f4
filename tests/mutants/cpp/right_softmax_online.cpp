// task: softmax
// expect: right
// kind: two_pass
// why: maximum and sum in one pass, rescaled when the maximum grows

#include <cmath>

extern "C" void launch(const float* x, float* out) {
  for (int64_t r = 0; r < x_d0; r++) {
    const float* p = x + r * x_d1;
    float top = -INFINITY, sum = 0.0f;
    for (int64_t i = 0; i < x_d1; i++) {
      if (p[i] > top) {
        sum *= std::exp(top - p[i]);
        top = p[i];
      }
      sum += std::exp(p[i] - top);
    }
    for (int64_t i = 0; i < x_d1; i++) out[r * x_d1 + i] = std::exp(p[i] - top) / sum;
  }
}
