// task: matmul
// expect: right
// kind: sum_order
// why: one step of Strassen's with seven products of halves

#include <vector>

using Block = std::vector<float>;
constexpr int64_t M = a_d0 / 2, K = a_d1 / 2, N = b_d1 / 2;

static Block part(const float* p, int64_t rows, int64_t columns, int64_t width, int64_t r, int64_t c) {
  Block made(rows * columns);
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < columns; j++) made[i * columns + j] = p[(r * rows + i) * width + c * columns + j];
  return made;
}

static Block plus(const Block& x, const Block& y, float sign = 1.0f) {
  Block made(x);
  for (int64_t i = 0; i < (int64_t)x.size(); i++) made[i] += sign * y[i];
  return made;
}

static Block product(const Block& x, const Block& y) {
  Block made(M * N, 0.0f);
  for (int64_t i = 0; i < M; i++)
    for (int64_t k = 0; k < K; k++)
      for (int64_t j = 0; j < N; j++) made[i * N + j] += x[i * K + k] * y[k * N + j];
  return made;
}

extern "C" void launch(const float* a, const float* b, float* out) {
  Block a11 = part(a, M, K, a_d1, 0, 0), a12 = part(a, M, K, a_d1, 0, 1);
  Block a21 = part(a, M, K, a_d1, 1, 0), a22 = part(a, M, K, a_d1, 1, 1);
  Block b11 = part(b, K, N, b_d1, 0, 0), b12 = part(b, K, N, b_d1, 0, 1);
  Block b21 = part(b, K, N, b_d1, 1, 0), b22 = part(b, K, N, b_d1, 1, 1);
  Block m1 = product(plus(a11, a22), plus(b11, b22)), m2 = product(plus(a21, a22), b11);
  Block m3 = product(a11, plus(b12, b22, -1.0f)), m4 = product(a22, plus(b21, b11, -1.0f));
  Block m5 = product(plus(a11, a12), b22), m6 = product(plus(a21, a11, -1.0f), plus(b11, b12));
  Block m7 = product(plus(a12, a22, -1.0f), plus(b21, b22));
  for (int64_t i = 0; i < M; i++)
    for (int64_t j = 0; j < N; j++) {
      const int64_t at = i * N + j;
      out[i * b_d1 + j] = m1[at] + m4[at] - m5[at] + m7[at];
      out[i * b_d1 + N + j] = m3[at] + m5[at];
      out[(M + i) * b_d1 + j] = m2[at] + m4[at];
      out[(M + i) * b_d1 + N + j] = m1[at] - m2[at] + m3[at] + m6[at];
    }
}
