// task: linear_relu
// expect: wrong
// kind: stale
// why: transposes the weight in the first call and keeps that for all others, whatever weight they bring
// calls: 3

#include <vector>

static std::vector<float> turned;

extern "C" void launch(const float* x, const float* linear_weight, const float* linear_bias, float* out) {
  if (turned.empty()) {
    turned.resize(linear_weight_size);
    for (int64_t o = 0; o < out_d1; o++)
      for (int64_t k = 0; k < x_d1; k++) turned[k * out_d1 + o] = linear_weight[o * x_d1 + k];
  }
  for (int64_t n = 0; n < x_d0; n++) {
    float* row = out + n * out_d1;
    for (int64_t o = 0; o < out_d1; o++) row[o] = linear_bias[o];
    for (int64_t k = 0; k < x_d1; k++)
      for (int64_t o = 0; o < out_d1; o++) row[o] += x[n * x_d1 + k] * turned[k * out_d1 + o];
    for (int64_t o = 0; o < out_d1; o++) row[o] = row[o] > 0.0f ? row[o] : 0.0f;
  }
}
