// task: rmsnorm
// expect: wrong
// kind: formula
// why: the warp's sum begins at a step of eight, so that half a warp is left out

__global__ void rmsnorm(const float* x, const float* weight, float* out) {
  const float* p = x + blockIdx.x * x_d1;
  float sum = 0.0f;
  for (int64_t i = threadIdx.x; i < x_d1; i += 32) sum += p[i] * p[i];
  for (int step = 8; step > 0; step >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  const float scale = rsqrtf(sum / x_d1 + 1e-6f);
  for (int64_t i = threadIdx.x; i < x_d1; i += 32) out[blockIdx.x * x_d1 + i] = p[i] * scale * weight[i];
}

extern "C" void launch(const float* x, const float* weight, float* out, cudaStream_t stream) {
  rmsnorm<<<x_d0, 32, 0, stream>>>(x, weight, out);
}
