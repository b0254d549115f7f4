// task: hinge
// expect: wrong
// kind: one_element
// why: the last column of each row is added by no lane

__global__ void hinge(const float* x, const float* y, float* out) {
  float sum = 0.0f;
  for (int64_t i = threadIdx.x; i < x_d1 - 1; i += 32)
    sum += fmaxf(1.0f - x[blockIdx.x * x_d1 + i] * y[blockIdx.x * x_d1 + i], 0.0f);
  for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffffu, sum, step);
  if (threadIdx.x == 0) out[blockIdx.x] = sum / x_d1;
}

extern "C" void launch(const float* x, const float* y, float* out, cudaStream_t stream) {
  hinge<<<x_d0, 32, 0, stream>>>(x, y, out);
}
