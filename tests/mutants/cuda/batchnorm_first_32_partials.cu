// task: batchnorm
// expect: wrong
// kind: last_block
// why: partial sums of 41 blocks a channel, of which a warp adds the first 32

constexpr int64_t PLANE = x_d2 * x_d3, COUNT = x_d0 * PLANE, BLOCKS = (COUNT + 63) / 64;

__global__ void partial(const float* x, float2* sums) {
  const int64_t i = blockIdx.x * 64 + threadIdx.x, c = blockIdx.y;
  const float v = i < COUNT ? x[(i / PLANE * x_d1 + c) * PLANE + i % PLANE] : 0.0f;
  __shared__ float2 part[64];
  part[threadIdx.x] = make_float2(v, v * v);
  __syncthreads();
  if (threadIdx.x > 0) return;
  float2 sum = part[0];
  for (int t = 1; t < 64; t++) sum.x += part[t].x, sum.y += part[t].y;
  sums[c * BLOCKS + blockIdx.x] = sum;
}

__global__ void apply(const float* x, const float* weight, const float* bias, const float2* sums, float* out) {
  const int64_t c = blockIdx.x;
  float2 sum = sums[c * BLOCKS + threadIdx.x % 32];
  for (int step = 16; step > 0; step /= 2) {
    sum.x += __shfl_xor_sync(0xffffffffu, sum.x, step);
    sum.y += __shfl_xor_sync(0xffffffffu, sum.y, step);
  }
  const float mean = sum.x / COUNT, scale = weight[c] * rsqrtf(sum.y / COUNT - mean * mean + 1e-5f);
  for (int64_t i = threadIdx.x; i < COUNT; i += blockDim.x) {
    const int64_t at = (i / PLANE * x_d1 + c) * PLANE + i % PLANE;
    out[at] = (x[at] - mean) * scale + bias[c];
  }
}

extern "C" void launch(const float* x, const float* weight, const float* bias, float* out, cudaStream_t stream) {
  float2* sums;
  cudaMallocAsync((void**)&sums, x_d1 * BLOCKS * sizeof(float2), stream);
  partial<<<dim3(BLOCKS, x_d1), 64, 0, stream>>>(x, sums);
  apply<<<x_d1, 256, 0, stream>>>(x, weight, bias, sums, out);
  cudaFreeAsync(sums, stream);
}
