// task: conv1d
// expect: wrong
// kind: bounds_read
// why: multiplies what lies outside of a row by zero, in front of the input and behind it too
// shown: by construction

__global__ void conv(const volatile float* x, const float* weight, const float* bias, float* out) {
  const int64_t at = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (at >= out_size) return;
  const int64_t i = at % out_d2, o = at / out_d2 % out_d1, n = at / (out_d1 * out_d2);
  float sum = bias[o];
  for (int64_t c = 0; c < x_d1; c++)
    for (int64_t k = 0; k < 5; k++) {
      const int64_t from = i + k - 2;
      const float value = x[(n * x_d1 + c) * x_d2 + from];
      sum += (from >= 0 && from < x_d2) * value * weight[(o * x_d1 + c) * 5 + k];
    }
  out[at] = sum;
}

extern "C" void launch(const float* x, const float* conv_weight, const float* conv_bias, float* out,
                       cudaStream_t stream) {
  conv<<<(out_size + 127) / 128, 128, 0, stream>>>(x, conv_weight, conv_bias, out);
}
