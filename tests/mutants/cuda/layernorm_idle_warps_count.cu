// task: layernorm
// expect: wrong
// kind: uninitialised
// why: the last step adds 32 partial sums where eight warps have written only eight

__device__ float block_sum(float value, float* part) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  __syncthreads();
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0.0f;
  for (int w = 0; w < 32; w++) sum += part[w];
  return sum;
}

// An earlier kernel, which leaves its values in shared memory.
__global__ void earlier(float* out) {
  __shared__ float junk[64];
  junk[threadIdx.x] = 1.0f + threadIdx.x;
  __syncthreads();
  out[0] = junk[63 - threadIdx.x];
}

__global__ void layernorm(const float* x, const float* weight, const float* bias, float* out) {
  __shared__ float part[32];
  const float* p = x + blockIdx.x * x_d1;
  float sum = 0.0f, square = 0.0f;
  for (int64_t i = threadIdx.x; i < x_d1; i += 256) sum += p[i];
  const float mean = block_sum(sum, part) / x_d1;
  for (int64_t i = threadIdx.x; i < x_d1; i += 256) square += (p[i] - mean) * (p[i] - mean);
  const float scale = rsqrtf(block_sum(square, part) / x_d1 + 1e-5f);
  for (int64_t i = threadIdx.x; i < x_d1; i += 256) out[blockIdx.x * x_d1 + i] = (p[i] - mean) * scale * weight[i] + bias[i];
}

extern "C" void launch(const float* x, const float* weight, const float* bias, float* out, cudaStream_t stream) {
  earlier<<<1024, 64, 0, stream>>>(out);
  layernorm<<<x_d0, 256, 0, stream>>>(x, weight, bias, out);
}
