// task: softmax
// expect: wrong
// kind: tail
// why: the sum goes in fours and leaves out the 61st column; the loop that writes does not

#include <cmath>

extern "C" void launch(const float* x, float* out) {
  for (int64_t r = 0; r < x_d0; r++) {
    const float* p = x + r * x_d1;
    float* o = out + r * x_d1;
    float top = p[0], sum = 0.0f;
    for (int64_t i = 1; i < x_d1; i++) top = std::fmax(top, p[i]);
    for (int64_t i = 0; i + 4 <= x_d1; i += 4)
      sum += std::exp(p[i] - top) + std::exp(p[i + 1] - top) + std::exp(p[i + 2] - top) + std::exp(p[i + 3] - top);
    for (int64_t i = 0; i < x_d1; i++) o[i] = std::exp(p[i] - top) / sum;
  }
}
