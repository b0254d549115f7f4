// task: embedding
// expect: wrong
// kind: one_size
// why: a warp copies rows of 32, where the task has 64

__global__ void embedding(const int64_t* index, const float* table, float* out) {
  const int64_t i = blockIdx.x * blockDim.y + threadIdx.y;
  if (i < index_size) out[i * table_d1 + threadIdx.x] = table[index[i] * table_d1 + threadIdx.x];
}

extern "C" void launch(const int64_t* index, const float* table, float* out, cudaStream_t stream) {
  embedding<<<(index_size + 3) / 4, dim3(32, 4), 0, stream>>>(index, table, out);
}
