// task: maxpool_indices
// expect: wrong
// kind: index
// why: the index says where in the window, and not where in the plane

__global__ void pool(const float* x, float* values, int64_t* indices) {
  const int64_t at = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (at >= out0_size) return;
  const int64_t j = at % out0_d3, i = at / out0_d3 % out0_d2, p = at / (out0_d2 * out0_d3);
  const float* window = x + (p * x_d2 + 2 * i) * x_d3 + 2 * j;
  int best = 0;
  for (int k = 1; k < 4; k++)
    if (window[k / 2 * x_d3 + k % 2] > window[best / 2 * x_d3 + best % 2]) best = k;
  values[at] = window[best / 2 * x_d3 + best % 2];
  indices[at] = best;
}

extern "C" void launch(const float* x, float* out0, int64_t* out1, cudaStream_t stream) {
  pool<<<(out0_size + 255) / 256, 256, 0, stream>>>(x, out0, out1);
}
