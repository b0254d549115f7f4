// task: sum_rows
// expect: right
// kind: scratch
// why: cudaMalloc and cudaFree in every call, slow and sound

__global__ void partial(const float* x, float* sums) {
  float sum = 0.0f;
  for (int64_t i = threadIdx.x; i < x_d1; i += 128) sum += x[blockIdx.x * x_d1 + i];
  sums[blockIdx.x * 128 + threadIdx.x] = sum;
}

__global__ void total(const float* sums, float* out) {
  float sum = 0.0f;
  for (int i = 0; i < 128; i++) sum += sums[blockIdx.x * 128 + i];
  out[blockIdx.x] = sum;
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) {
  float* sums = nullptr;
  if (cudaMalloc((void**)&sums, x_d0 * 128 * sizeof(float)) != cudaSuccess) return;
  partial<<<x_d0, 128, 0, stream>>>(x, sums);
  total<<<x_d0, 1, 0, stream>>>(sums, out);
  cudaStreamSynchronize(stream);
  cudaFree(sums);
}
