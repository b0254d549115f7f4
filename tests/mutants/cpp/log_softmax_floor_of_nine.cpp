// task: log_softmax
// expect: wrong
// kind: drawn_values
// why: results are cut off at -9, which most rows never reach

#include <algorithm>
#include <cmath>

extern "C" void launch(const float* x, float* out) {
  for (int64_t r = 0; r < x_d0; r++) {
    const float* p = x + r * x_d1;
    float sum = 0.0f;
    for (int64_t i = 0; i < x_d1; i++) sum += std::exp(p[i]);
    const float shift = std::log(sum);
    for (int64_t i = 0; i < x_d1; i++) out[r * x_d1 + i] = std::max(p[i] - shift, -9.0f);
  }
}
