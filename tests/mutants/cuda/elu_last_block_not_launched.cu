// task: elu
// expect: wrong
// kind: last_block
// why: the number of blocks is rounded down

__global__ void elu(const float* x, float* out) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < x_size) out[i] = x[i] > 0.0f ? x[i] : 0.7f * expm1f(x[i]);
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) {
  elu<<<x_size / 1024, 1024, 0, stream>>>(x, out);
}
