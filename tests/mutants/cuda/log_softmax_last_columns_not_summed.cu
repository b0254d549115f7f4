// task: log_softmax
// expect: wrong
// kind: tail
// why: the loop of each lane ends one step early, so that 13 columns are written and not summed

__global__ void log_softmax(const float* x, float* out) {
  const float* p = x + blockIdx.x * x_d1;
  float top = -INFINITY, sum = 0.0f;
  for (int64_t i = threadIdx.x; i < x_d1; i += 32) top = fmaxf(top, p[i]);
  for (int step = 16; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
  for (int64_t i = 0; i < x_d1 / 32; i++) sum += expf(p[i * 32 + threadIdx.x] - top);
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  for (int64_t i = threadIdx.x; i < x_d1; i += 32) out[blockIdx.x * x_d1 + i] = p[i] - top - logf(sum);
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) {
  log_softmax<<<x_d0, 32, 0, stream>>>(x, out);
}
