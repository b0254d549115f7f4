// task: layernorm_shifted
// expect: wrong
// kind: half_sums
// why: reads its input through sixteen bits

#include <cuda_fp16.h>

__global__ void layernorm(const float* x, float* out) {
  __shared__ float part[8];
  const float* p = x + blockIdx.x * x_d1;
  float statistics[2] = {0.0f, 0.0f};
  for (int pass = 0; pass < 2; pass++) {
    float sum = 0.0f;
    for (int64_t i = threadIdx.x; i < x_d1; i += 256) {
      const float v = __half2float(__float2half(p[i]));
      sum += pass == 0 ? v : (v - statistics[0]) * (v - statistics[0]);
    }
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    __syncthreads();
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    for (int w = 0; w < 8; w++) statistics[pass] += part[w] / x_d1;
  }
  for (int64_t i = threadIdx.x; i < x_d1; i += 256)
    out[blockIdx.x * x_d1 + i] = (__half2float(__float2half(p[i])) - statistics[0]) * rsqrtf(statistics[1] + 1e-5f);
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) {
  layernorm<<<x_d0, 256, 0, stream>>>(x, out);
}
