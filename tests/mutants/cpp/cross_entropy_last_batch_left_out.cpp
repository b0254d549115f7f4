// task: cross_entropy
// expect: wrong
// kind: last_block
// why: batches of eight; the last batch is not added

#include <cmath>

extern "C" void launch(const float* x, const int64_t* target, float* out) {
  double loss = 0.0;
  for (int64_t batch = 0; batch < x_d0 / 8 - 1; batch++)
    for (int64_t n = batch * 8; n < batch * 8 + 8; n++) {
      double sum = 0.0;
      for (int64_t c = 0; c < x_d1; c++) sum += std::exp((double)x[n * x_d1 + c]);
      loss += std::log(sum) - x[n * x_d1 + target[n]];
    }
  *out = (float)(loss / x_d0);
}
