// task: in_place
// expect: wrong
// kind: dtype
// why: copies as many bytes as there are elements, and works on what it did not copy

__global__ void affine(float* y) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < out_size) y[i] = 2.0f * y[i] + 1.0f;
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) {
  cudaMemcpyAsync(out, x, x_size, cudaMemcpyDeviceToDevice, stream);
  affine<<<(out_size + 255) / 256, 256, 0, stream>>>(out);
}
