// task: linear_relu
// expect: wrong
// kind: bias
// why: cuts off at zero before the bias is added

extern "C" void launch(const float* x, const float* linear_weight, const float* linear_bias, float* out) {
  for (int64_t n = 0; n < x_d0; n++)
    for (int64_t o = 0; o < out_d1; o++) {
      float sum = 0.0f;
      for (int64_t k = 0; k < x_d1; k++) sum += x[n * x_d1 + k] * linear_weight[o * x_d1 + k];
      out[n * out_d1 + o] = (sum > 0.0f ? sum : 0.0f) + linear_bias[o];
    }
}
