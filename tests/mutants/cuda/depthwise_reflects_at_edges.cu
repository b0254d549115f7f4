// task: depthwise
// expect: wrong
// kind: padding
// why: mirrors the image at its edges where zeros belong

__device__ int64_t mirrored(int64_t i, int64_t n) { return i < 0 ? -i : i >= n ? 2 * n - 2 - i : i; }

__global__ void conv(const float* x, const float* weight, float* out) {
  const int64_t at = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (at >= out_size) return;
  const int64_t j = at % x_d3, i = at / x_d3 % x_d2, p = at / (x_d2 * x_d3);
  float sum = 0.0f;
  for (int k = 0; k < 9; k++)
    sum += weight[p % x_d1 * 9 + k] * x[(p * x_d2 + mirrored(i + k / 3 - 1, x_d2)) * x_d3 + mirrored(j + k % 3 - 1, x_d3)];
  out[at] = sum;
}

extern "C" void launch(const float* x, const float* conv_weight, float* out, cudaStream_t stream) {
  conv<<<(out_size + 255) / 256, 256, 0, stream>>>(x, conv_weight, out);
}
