// task: cumsum
// expect: wrong
// kind: barrier
// why: a scan after Hillis and Steele in one buffer: a step reads what the same step has already added to

__global__ void cumsum(const float* x, float* out) {
  __shared__ float sums[x_d1];
  const float* row = x + blockIdx.x * x_d1;
  for (int i = threadIdx.x; i < x_d1; i += blockDim.x) sums[i] = row[i];
  __syncthreads();
  for (int step = 1; step < x_d1; step *= 2) {
    for (int i = threadIdx.x; i < x_d1; i += blockDim.x) {
      if (i >= step) sums[i] += sums[i - step];
    }
    __syncthreads();
  }
  for (int i = threadIdx.x; i < x_d1; i += blockDim.x) out[blockIdx.x * x_d1 + i] = sums[i];
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) {
  cumsum<<<x_d0, 256, 0, stream>>>(x, out);
}
