// task: relu
// expect: wrong
// kind: leak
// why: takes 4 MB of the device with every call and gives nothing back
// shown: by construction

__global__ void relu(const float* x, float* out) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < x_size) out[i] = x[i] > 0.0f ? x[i] : 0.0f;
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) {
  float* scratch;
  cudaMalloc(&scratch, 4 << 20);
  cudaMemcpyAsync(scratch, x, x_size * sizeof(float), cudaMemcpyDeviceToDevice, stream);
  relu<<<(x_size + 255) / 256, 256, 0, stream>>>(scratch, out);
}
