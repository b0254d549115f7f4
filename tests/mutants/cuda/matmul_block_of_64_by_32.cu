// task: matmul
// expect: wrong
// kind: launch_failure
// why: a block of 64 by 32 threads is twice what there may be; the output was zeroed before, so it stays zero

__global__ void matmul(const float* a, const float* b, float* out) {
  const int64_t i = blockIdx.y * blockDim.y + threadIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= a_d0 || j >= b_d1) return;
  float sum = 0.0f;
  for (int64_t k = 0; k < a_d1; k++) sum += a[i * a_d1 + k] * b[k * b_d1 + j];
  out[i * b_d1 + j] = sum;
}

extern "C" void launch(const float* a, const float* b, float* out, cudaStream_t stream) {
  cudaMemsetAsync(out, 0, out_size * sizeof(float), stream);
  matmul<<<dim3(3, 3), dim3(64, 32), 0, stream>>>(a, b, out);
  cudaGetLastError();
}
