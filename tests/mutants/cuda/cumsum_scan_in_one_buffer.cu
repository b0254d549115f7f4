// task: cumsum
// expect: wrong
// kind: barrier
// why: a scan after Hillis and Steele in one buffer: a warp reads what another has already added to

__global__ void cumsum(const float* x, float* out) {
  __shared__ volatile float sums[1024];
  const int t = threadIdx.x;
  const float* row = x + blockIdx.x * x_d1;
  sums[t] = row[t];
  __syncthreads();
  for (int step = 1; step < 1024; step *= 2) {
    if (t >= step) sums[t] += sums[t - step];
    __syncthreads();
  }
  out[blockIdx.x * x_d1 + t] = sums[t];
  if (t == 1023) out[blockIdx.x * x_d1 + 1024] = sums[1023] + row[1024];
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) {
  cumsum<<<x_d0, 1024, 0, stream>>>(x, out);
}
