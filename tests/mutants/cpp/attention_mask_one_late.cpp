// task: attention
// expect: wrong
// kind: edge
// why: the mask is one position late: each query sees the key behind it

#include <cmath>

extern "C" void launch(const float* q, const float* k, const float* v, float* out) {
  float score[q_d1];
  for (int64_t h = 0; h < q_d0; h++)
    for (int64_t i = 0; i < q_d1; i++) {
      const int64_t seen = i + 2 < k_d1 ? i + 2 : k_d1;
      float top = -1e30f, sum = 0.0f;
      for (int64_t j = 0; j < seen; j++) {
        float dot = 0.0f;
        for (int64_t d = 0; d < q_d2; d++) dot += q[(h * q_d1 + i) * q_d2 + d] * k[(h * k_d1 + j) * k_d2 + d];
        score[j] = dot / std::sqrt((float)q_d2);
        top = std::fmax(top, score[j]);
      }
      for (int64_t j = 0; j < seen; j++) sum += score[j] = std::exp(score[j] - top);
      for (int64_t d = 0; d < v_d2; d++) {
        float mixed = 0.0f;
        for (int64_t j = 0; j < seen; j++) mixed += score[j] * v[(h * v_d1 + j) * v_d2 + d];
        out[(h * q_d1 + i) * v_d2 + d] = mixed / sum;
      }
    }
}
