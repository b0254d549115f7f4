// task: maxpool
// expect: wrong
// kind: drawn_values
// why: starts from bytes of 0x80, which are a tiny negative float and not the least one

__global__ void pool(const float* x, float* out) {
  const int64_t at = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (at >= out_size) return;
  const int64_t j = at % out_d3, i = at / out_d3 % out_d2, p = at / (out_d2 * out_d3);
  for (int k = 0; k < 9; k++) {
    const int64_t h = 2 * i + k / 3 - 1, w = 2 * j + k % 3 - 1;
    if (h >= 0 && h < x_d2 && w >= 0 && w < x_d3) out[at] = fmaxf(out[at], x[(p * x_d2 + h) * x_d3 + w]);
  }
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) {
  cudaMemsetAsync(out, 0x80, out_size * sizeof(float), stream);
  pool<<<(out_size + 255) / 256, 256, 0, stream>>>(x, out);
}
