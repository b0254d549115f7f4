// task: gather
// expect: wrong
// kind: dtype
// why: reads indices of 64 bits as 32, which finds a zero in every other place

__global__ void gather(const float* x, const int* index, float* out) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < index_size) out[i] = x[i / index_d1 * x_d1 + index[i]];
}

extern "C" void launch(const float* x, const int64_t* index, float* out, cudaStream_t stream) {
  gather<<<(index_size + 127) / 128, 128, 0, stream>>>(x, reinterpret_cast<const int*>(index), out);
}
