// task: logsumexp
// expect: wrong
// kind: overflow
// why: the maximum is sought among the first four columns only; where a much larger one lies behind, exp overflows

#include <cmath>

extern "C" void launch(const float* x, float* out) {
  for (int64_t r = 0; r < x_d0; r++) {
    const float* p = x + r * x_d1;
    float top = p[0], sum = 0.0f;
    for (int64_t i = 1; i < 4; i++) top = p[i] > top ? p[i] : top;
    for (int64_t i = 0; i < x_d1; i++) sum += std::exp(30.0f * (p[i] - top));
    out[r] = 30.0f * top + std::log(sum);
  }
}
