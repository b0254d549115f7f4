// task: sum_rows
// expect: wrong
// kind: launch_failure
// why: asks for 128 KB of dynamic shared memory without raising the limit, and clears the error

__global__ void sum_rows(const float* x, float* out) {
  extern __shared__ float part[];
  float sum = 0.0f;
  for (int64_t i = threadIdx.x; i < x_d1; i += blockDim.x) sum += x[blockIdx.x * x_d1 + i];
  part[threadIdx.x] = sum;
  for (int step = blockDim.x / 2; step > 0; step /= 2) {
    __syncthreads();
    if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
  }
  if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) {
  sum_rows<<<x_d0, 256, 128 << 10, stream>>>(x, out);
  (void)cudaGetLastError();
}
