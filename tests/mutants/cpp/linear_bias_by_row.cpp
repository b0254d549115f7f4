// task: linear_relu
// expect: wrong
// kind: bias
// why: the bias is indexed by the sample and not by the feature

extern "C" void launch(const float* x, const float* linear_weight, const float* linear_bias, float* out) {
  for (int64_t n = 0; n < x_d0; n++)
    for (int64_t o = 0; o < out_d1; o++) {
      float sum = linear_bias[n % out_d1];
      for (int64_t k = 0; k < x_d1; k++) sum += x[n * x_d1 + k] * linear_weight[o * x_d1 + k];
      out[n * out_d1 + o] = sum > 0.0f ? sum : 0.0f;
    }
}
