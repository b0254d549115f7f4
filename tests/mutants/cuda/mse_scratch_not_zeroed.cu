// task: mse
// expect: wrong
// kind: uninitialised
// why: sums into memory that was just allocated, where an earlier call's sums lie
// calls: 3

__global__ void partial(const float* x, const float* y, float* sums) {
  float sum = 0.0f;
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < x_size; i += gridDim.x * blockDim.x)
    sum += (x[i] - y[i]) * (x[i] - y[i]);
  atomicAdd(&sums[threadIdx.x % 32], sum);
}

__global__ void total(const float* sums, float* out) {
  float sum = 0.0f;
  for (int i = 0; i < 32; i++) sum += sums[i];
  *out = sum / x_size;
}

extern "C" void launch(const float* x, const float* y, float* out, cudaStream_t stream) {
  static float* sums = nullptr;
  if (sums == nullptr) cudaMalloc(&sums, 32 * sizeof(float));
  partial<<<64, 256, 0, stream>>>(x, y, sums);
  total<<<1, 1, 0, stream>>>(sums, out);
}
