// task: cross_entropy
// expect: wrong
// kind: uninitialised
// why: adds to an output that nobody has zeroed

__global__ void loss(const float* x, const int64_t* target, float* out) {
  const int64_t n = blockIdx.x * blockDim.x + threadIdx.x;
  if (n >= x_d0) return;
  float top = x[n * x_d1], sum = 0.0f;
  for (int64_t c = 1; c < x_d1; c++) top = fmaxf(top, x[n * x_d1 + c]);
  for (int64_t c = 0; c < x_d1; c++) sum += expf(x[n * x_d1 + c] - top);
  atomicAdd(out, (logf(sum) + top - x[n * x_d1 + target[n]]) / x_d0);
}

extern "C" void launch(const float* x, const int64_t* target, float* out, cudaStream_t stream) {
  loss<<<(x_d0 + 63) / 64, 64, 0, stream>>>(x, target, out);
}
