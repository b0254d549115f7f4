// task: in_place
// expect: right
// kind: in_place
// why: the task works in its input, the kernel copies first

__global__ void affine(float* y) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < out_size) y[i] = fmaf(2.0f, y[i], 1.0f);
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) {
  cudaMemcpyAsync(out, x, x_size * sizeof(float), cudaMemcpyDeviceToDevice, stream);
  affine<<<(out_size + 255) / 256, 256, 0, stream>>>(out);
}
