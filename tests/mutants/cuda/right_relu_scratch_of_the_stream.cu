// task: relu
// expect: right
// kind: scratch
// why: memory of the stream's pool, given back in order

__global__ void relu(float* y) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < x_size) y[i] = y[i] > 0.0f ? y[i] : 0.0f;
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) {
  float* y;
  cudaMallocAsync((void**)&y, x_size * sizeof(float), stream);
  cudaMemcpyAsync(y, x, x_size * sizeof(float), cudaMemcpyDeviceToDevice, stream);
  relu<<<(x_size + 255) / 256, 256, 0, stream>>>(y);
  cudaMemcpyAsync(out, y, x_size * sizeof(float), cudaMemcpyDeviceToDevice, stream);
  cudaFreeAsync(y, stream);
}
