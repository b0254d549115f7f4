// task: logsumexp
// expect: wrong
// kind: formula
// why: takes the maximum off and forgets to add it to the logarithm

#include <cmath>

extern "C" void launch(const float* x, float* out) {
  for (int64_t r = 0; r < x_d0; r++) {
    const float* p = x + r * x_d1;
    float top = p[0], sum = 0.0f;
    for (int64_t i = 0; i < x_d1; i++) top = p[i] > top ? p[i] : top;
    for (int64_t i = 0; i < x_d1; i++) sum += std::exp(30.0f * (p[i] - top));
    out[r] = std::log(sum);
  }
}
