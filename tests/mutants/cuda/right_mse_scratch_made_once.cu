// task: mse
// expect: right
// kind: scratch
// why: takes 8 MB in its first call and keeps them, zeroing what it uses in every call

__global__ void partial(const float* x, const float* y, double* sums) {
  float sum = 0.0f;
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < x_size; i += gridDim.x * blockDim.x)
    sum += (x[i] - y[i]) * (x[i] - y[i]);
  atomicAdd(&sums[threadIdx.x], (double)sum);
}

__global__ void total(const double* sums, float* out) {
  double sum = 0.0;
  for (int i = 0; i < 256; i++) sum += sums[i];
  *out = (float)(sum / x_size);
}

extern "C" void launch(const float* x, const float* y, float* out, cudaStream_t stream) {
  static double* sums = nullptr;
  if (sums == nullptr) cudaMalloc((void**)&sums, 8 << 20);
  cudaMemsetAsync(sums, 0, 256 * sizeof(double), stream);
  partial<<<64, 256, 0, stream>>>(x, y, sums);
  total<<<1, 1, 0, stream>>>(sums, out);
}
