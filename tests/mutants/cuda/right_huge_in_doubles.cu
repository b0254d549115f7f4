// task: huge
// expect: right
// kind: overflow
// why: through double and back, values as large as they should be

__global__ void scale(const float* x, float* out) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < x_size) out[i] = (float)((double)x[i] * 1e18);
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) {
  scale<<<(x_size + 255) / 256, 256, 0, stream>>>(x, out);
}
