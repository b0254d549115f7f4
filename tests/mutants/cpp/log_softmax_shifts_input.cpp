// task: log_softmax
// expect: wrong
// kind: input_mutated
// why: takes the maximum off its input in place and leaves it so
// shown: by construction

#include <cmath>

extern "C" void launch(const float* x, float* out) {
  for (int64_t r = 0; r < x_d0; r++) {
    float* row = const_cast<float*>(x) + r * x_d1;
    float top = row[0], sum = 0.0f;
    for (int64_t i = 1; i < x_d1; i++) top = row[i] > top ? row[i] : top;
    for (int64_t i = 0; i < x_d1; i++) row[i] -= top;
    for (int64_t i = 0; i < x_d1; i++) sum += std::exp(row[i]);
    for (int64_t i = 0; i < x_d1; i++) out[r * x_d1 + i] = row[i] - std::log(sum);
  }
}
