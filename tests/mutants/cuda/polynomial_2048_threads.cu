// task: polynomial
// expect: wrong
// kind: launch_failure
// why: asks for 2048 threads a block, which no device has: nothing runs, and nobody looks at the error

__global__ void polynomial(const float* x, float* out) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < x_size) out[i] = ((0.3f * x[i] + 1.0f) * x[i] - 2.0f) * x[i] + 0.7f;
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) {
  polynomial<<<(x_size + 2047) / 2048, 2048, 0, stream>>>(x, out);
  cudaGetLastError();
}
