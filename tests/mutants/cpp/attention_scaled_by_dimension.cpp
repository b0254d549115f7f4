// task: attention
// expect: wrong
// kind: formula
// why: divides the scores by 32 and not by its root

#include <algorithm>
#include <cmath>
#include <vector>

extern "C" void launch(const float* q, const float* k, const float* v, float* out) {
  std::vector<double> weights(k_d1);
  for (int64_t row = 0; row < q_d0 * q_d1; row++) {
    const int64_t h = row / q_d1, i = row % q_d1;
    double sum = 0.0;
    for (int64_t j = 0; j <= i; j++) {
      double dot = 0.0;
      for (int64_t d = 0; d < q_d2; d++) dot += (double)q[row * q_d2 + d] * k[(h * k_d1 + j) * k_d2 + d];
      sum += weights[j] = std::exp(dot / q_d2);
    }
    std::fill(out + row * v_d2, out + (row + 1) * v_d2, 0.0f);
    for (int64_t j = 0; j <= i; j++)
      for (int64_t d = 0; d < v_d2; d++) out[row * v_d2 + d] += (float)(weights[j] / sum) * v[(h * v_d1 + j) * v_d2 + d];
  }
}
