// task: bincount
// expect: wrong
// kind: race
// why: counts in shared memory with atomics, and adds blocks to the output without

__global__ void bincount(const int64_t* x, int64_t* out) {
  __shared__ int counts[out_size];
  if (threadIdx.x < out_size) counts[threadIdx.x] = 0;
  __syncthreads();
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < x_size) atomicAdd(&counts[x[i]], 1);
  __syncthreads();
  if (threadIdx.x < out_size) out[threadIdx.x] += counts[threadIdx.x];
}

extern "C" void launch(const int64_t* x, int64_t* out, cudaStream_t stream) {
  cudaMemsetAsync(out, 0, out_size * sizeof(int64_t), stream);
  bincount<<<(x_size + 255) / 256, 256, 0, stream>>>(x, out);
}
