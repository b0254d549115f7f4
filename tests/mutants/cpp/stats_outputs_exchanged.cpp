// task: stats
// expect: wrong
// kind: index
// why: minimum and maximum are written to each other's places

#include <algorithm>
#include <numeric>

extern "C" void launch(const float* x, float* out0, float* out1, float* out2) {
  for (int64_t r = 0; r < x_d0; r++) {
    const float *begin = x + r * x_d1, *end = begin + x_d1;
    const auto [low, high] = std::minmax_element(begin, end);
    out0[r] = *high;
    out1[r] = *low;
    out2[r] = std::accumulate(begin, end, 0.0f) / x_d1;
  }
}
