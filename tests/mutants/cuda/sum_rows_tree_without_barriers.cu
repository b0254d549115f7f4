// task: sum_rows
// expect: wrong
// kind: barrier
// why: a tree of 32 warps in shared memory with no barrier between its steps

__global__ void sum_rows(const float* x, float* out) {
  __shared__ volatile float part[1024];
  float sum = 0.0f;
  for (int64_t i = threadIdx.x; i < x_d1; i += 1024) sum += x[blockIdx.x * x_d1 + i];
  part[threadIdx.x] = sum;
  for (int step = 512; step > 0; step /= 2)
    if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
  if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) {
  sum_rows<<<x_d0, 1024, 0, stream>>>(x, out);
}
