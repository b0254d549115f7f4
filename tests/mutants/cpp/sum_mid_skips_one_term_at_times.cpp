// task: sum_mid
// expect: wrong
// kind: flaky
// why: one call in ten, by chance, leaves one term out of one sum
// calls: 100

#include <random>

static std::mt19937 generator{12345};

extern "C" void launch(const float* x, float* out) {
  for (int64_t i = 0; i < x_d0; i++)
    for (int64_t k = 0; k < x_d2; k++) {
      float sum = 0.0f;
      for (int64_t j = 0; j < x_d1; j++) sum += x[(i * x_d1 + j) * x_d2 + k];
      out[i * x_d2 + k] = sum;
    }
  if (generator() % 10 == 0) out[517] -= x[(7 * x_d1 + 64) * x_d2 + 62];
}
