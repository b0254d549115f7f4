// task: matmul
// expect: wrong
// kind: half_sums
// why: quantises each row and column to signed bytes

#include <cmath>
#include <vector>

extern "C" void launch(const float* a, const float* b, float* out) {
  std::vector<int8_t> qa(a_size), qb(b_size);
  std::vector<float> sa(a_d0, 0.0f), sb(b_d1, 0.0f);
  for (int64_t i = 0; i < a_size; i++) sa[i / a_d1] = std::fmax(sa[i / a_d1], std::fabs(a[i]) / 127.0f);
  for (int64_t i = 0; i < b_size; i++) sb[i % b_d1] = std::fmax(sb[i % b_d1], std::fabs(b[i]) / 127.0f);
  for (int64_t i = 0; i < a_size; i++) qa[i] = (int8_t)std::lrint(a[i] / sa[i / a_d1]);
  for (int64_t i = 0; i < b_size; i++) qb[i] = (int8_t)std::lrint(b[i] / sb[i % b_d1]);
  for (int64_t i = 0; i < a_d0; i++)
    for (int64_t j = 0; j < b_d1; j++) {
      int sum = 0;
      for (int64_t k = 0; k < a_d1; k++) sum += qa[i * a_d1 + k] * qb[k * b_d1 + j];
      out[i * b_d1 + j] = sum * sa[i] * sb[j];
    }
}
