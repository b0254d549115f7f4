// task: bincount
// expect: wrong
// kind: uninitialised
// why: counters in shared memory begin with what another block left there

__global__ void bincount(const int64_t* x, unsigned long long* out) {
  __shared__ int counts[out_size];
  for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < x_size; i += gridDim.x * blockDim.x)
    atomicAdd(&counts[x[i]], 1);
  __syncthreads();
  if (threadIdx.x < out_size) atomicAdd(&out[threadIdx.x], (unsigned long long)counts[threadIdx.x]);
}

extern "C" void launch(const int64_t* x, int64_t* out, cudaStream_t stream) {
  cudaMemsetAsync(out, 0, out_size * sizeof(int64_t), stream);
  bincount<<<2048, 128, 0, stream>>>(x, (unsigned long long*)out);
}
