// task: batchnorm
// expect: right
// kind: two_pass
// why: shifted sums by atomics in memory that it zeroes, then a kernel that applies them

constexpr int64_t PLANE = x_d2 * x_d3, COUNT = x_d0 * PLANE;

__global__ void statistics(const float* x, double* sums) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i >= COUNT) return;
  const double v = x[(i / PLANE * x_d1 + blockIdx.y) * PLANE + i % PLANE];
  atomicAdd(&sums[2 * blockIdx.y], v);
  atomicAdd(&sums[2 * blockIdx.y + 1], v * v);
}

__global__ void apply(const float* x, const float* weight, const float* bias, const double* sums, float* out) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i >= x_size) return;
  const int64_t c = i / PLANE % x_d1;
  const double mean = sums[2 * c] / COUNT, var = sums[2 * c + 1] / COUNT - mean * mean;
  out[i] = (float)((x[i] - mean) * rsqrt(var + 1e-5)) * weight[c] + bias[c];
}

extern "C" void launch(const float* x, const float* weight, const float* bias, float* out, cudaStream_t stream) {
  double* sums;
  cudaMallocAsync((void**)&sums, 2 * x_d1 * sizeof(double), stream);
  cudaMemsetAsync(sums, 0, 2 * x_d1 * sizeof(double), stream);
  statistics<<<dim3((COUNT + 127) / 128, x_d1), 128, 0, stream>>>(x, sums);
  apply<<<(x_size + 255) / 256, 256, 0, stream>>>(x, weight, bias, sums, out);
  cudaFreeAsync(sums, stream);
}
