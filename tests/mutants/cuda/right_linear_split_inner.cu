// task: linear
// expect: right
// kind: atomics
// why: four blocks share each sum and add their parts by atomics onto the bias

__global__ void start(const float* bias, float* out) {
  const int64_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < out_size) out[i] = bias[i % out_d1];
}

__global__ void linear(const float* x, const float* weight, float* out) {
  const int64_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= out_size) return;
  constexpr int64_t part = x_d1 / 4;
  float sum = 0.0f;
  for (int64_t k = blockIdx.y * part; k < (blockIdx.y + 1) * part; k++)
    sum += x[i / out_d1 * x_d1 + k] * weight[i % out_d1 * x_d1 + k];
  atomicAdd(&out[i], sum);
}

extern "C" void launch(const float* x, const float* weight, const float* bias, float* out, cudaStream_t stream) {
  start<<<(out_size + 127) / 128, 128, 0, stream>>>(bias, out);
  linear<<<dim3((out_size + 127) / 128, 4), 128, 0, stream>>>(x, weight, out);
}
