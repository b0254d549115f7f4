// task: index_add
// expect: wrong
// kind: race
// why: threads read, add and write back the same rows

__global__ void index_add(const float* x, const int64_t* index, float* out) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < x_size) out[index[i / x_d1] * x_d1 + i % x_d1] += x[i];
}

extern "C" void launch(const float* x, const int64_t* index, float* out, cudaStream_t stream) {
  cudaMemsetAsync(out, 0, out_size * sizeof(float), stream);
  index_add<<<(x_size + 255) / 256, 256, 0, stream>>>(x, index, out);
}
