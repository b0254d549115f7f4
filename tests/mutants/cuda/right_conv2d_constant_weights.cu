// task: conv2d
// expect: right
// kind: scratch
// why: weights to constant memory in every call

__constant__ float kept[conv_weight_size];

__global__ void conv(const float* x, const float* bias, float* out) {
  const int64_t at = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (at >= out_size) return;
  const int64_t j = at % out_d3, i = at / out_d3 % out_d2, o = at / (out_d2 * out_d3) % out_d1;
  const int64_t n = at / (out_d1 * out_d2 * out_d3);
  float sum = bias[o];
  for (int64_t c = 0; c < x_d1; c++)
    for (int k = 0; k < 9; k++) {
      const int64_t h = i + k / 3 - 1, w = j + k % 3 - 1;
      if (h >= 0 && h < x_d2 && w >= 0 && w < x_d3)
        sum += x[((n * x_d1 + c) * x_d2 + h) * x_d3 + w] * kept[(o * x_d1 + c) * 9 + k];
    }
  out[at] = sum;
}

extern "C" void launch(const float* x, const float* conv_weight, const float* conv_bias, float* out,
                       cudaStream_t stream) {
  cudaMemcpyToSymbolAsync(kept, conv_weight, sizeof kept, 0, cudaMemcpyDeviceToDevice, stream);
  conv<<<(out_size + 127) / 128, 128, 0, stream>>>(x, conv_bias, out);
}
