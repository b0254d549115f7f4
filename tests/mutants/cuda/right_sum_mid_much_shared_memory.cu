// task: sum_mid
// expect: right
// kind: scratch
// why: 96 KB of dynamic shared memory, for which it raises the limit first

__global__ void sum_mid(const float* x, float* out) {
  extern __shared__ float slab[];
  const float* p = x + blockIdx.x * x_d1 * x_d2;
  for (int64_t i = threadIdx.x; i < x_d1 * x_d2; i += blockDim.x) slab[i] = p[i];
  __syncthreads();
  if (threadIdx.x >= x_d2) return;
  float sum = 0.0f;
  for (int64_t j = x_d1 - 1; j >= 0; j--) sum += slab[j * x_d2 + threadIdx.x];
  out[blockIdx.x * x_d2 + threadIdx.x] = sum;
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) {
  cudaFuncSetAttribute(sum_mid, cudaFuncAttributeMaxDynamicSharedMemorySize, 96 << 10);
  sum_mid<<<x_d0, 128, 96 << 10, stream>>>(x, out);
}
