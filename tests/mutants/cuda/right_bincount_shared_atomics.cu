// task: bincount
// expect: right
// kind: atomics
// why: counters in shared memory, merged by atomics on 64 bits

__global__ void bincount(const int64_t* x, unsigned long long* out) {
  __shared__ unsigned int counts[out_size];
  for (int i = threadIdx.x; i < out_size; i += blockDim.x) counts[i] = 0;
  __syncthreads();
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < x_size; i += gridDim.x * blockDim.x)
    atomicAdd(&counts[x[i]], 1u);
  __syncthreads();
  for (int i = threadIdx.x; i < out_size; i += blockDim.x) atomicAdd(&out[i], (unsigned long long)counts[i]);
}

extern "C" void launch(const int64_t* x, int64_t* out, cudaStream_t stream) {
  cudaMemsetAsync(out, 0, out_size * sizeof(int64_t), stream);
  bincount<<<40, 128, 0, stream>>>(x, (unsigned long long*)out);
}
