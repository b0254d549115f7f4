// task: layernorm_small
// expect: wrong
// kind: epsilon
// why: epsilon is left out

__global__ void layernorm(const float* x, float* out) {
  const float* p = x + blockIdx.x * x_d1;
  float sum = 0.0f, square = 0.0f;
  for (int64_t i = threadIdx.x; i < x_d1; i += 32) sum += p[i];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  const float mean = sum / x_d1;
  for (int64_t i = threadIdx.x; i < x_d1; i += 32) square += (p[i] - mean) * (p[i] - mean);
  for (int step = 16; step > 0; step /= 2) square += __shfl_xor_sync(0xffffffffu, square, step);
  const float scale = rsqrtf(square / x_d1);
  for (int64_t i = threadIdx.x; i < x_d1; i += 32) out[blockIdx.x * x_d1 + i] = (p[i] - mean) * scale;
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) {
  layernorm<<<x_d0, 32, 0, stream>>>(x, out);
}
