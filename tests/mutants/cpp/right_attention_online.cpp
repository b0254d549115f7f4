// task: attention
// expect: right
// kind: two_pass
// why: one pass over the keys, sums and mixture rescaled together

#include <cmath>

extern "C" void launch(const float* q, const float* k, const float* v, float* out) {
  for (int64_t h = 0; h < q_d0; h++)
    for (int64_t i = 0; i < q_d1; i++) {
      float mixed[v_d2] = {}, top = -INFINITY, sum = 0.0f;
      for (int64_t j = 0; j <= i; j++) {
        float dot = 0.0f;
        for (int64_t d = 0; d < q_d2; d++) dot += q[(h * q_d1 + i) * q_d2 + d] * k[(h * k_d1 + j) * k_d2 + d];
        const float score = dot * 0.17677669529f, higher = std::fmax(top, score);
        const float old = std::exp(top - higher), fresh = std::exp(score - higher);
        sum = sum * old + fresh;
        for (int64_t d = 0; d < v_d2; d++) mixed[d] = mixed[d] * old + fresh * v[(h * v_d1 + j) * v_d2 + d];
        top = higher;
      }
      for (int64_t d = 0; d < v_d2; d++) out[(h * q_d1 + i) * v_d2 + d] = mixed[d] / sum;
    }
}
