// task: cumsum
// expect: right
// kind: sum_order
// why: a warp a row, 32 columns at a time, the carry handed on by shuffles

__global__ void cumsum(const float* x, float* out) {
  const int64_t row = blockIdx.x * x_d1;
  float carry = 0.0f;
  for (int64_t start = 0; start < x_d1; start += 32) {
    const int64_t i = start + threadIdx.x;
    float sum = i < x_d1 ? x[row + i] : 0.0f;
    for (int step = 1; step < 32; step *= 2) {
      const float before = __shfl_up_sync(0xffffffffu, sum, step);
      if (threadIdx.x >= step) sum += before;
    }
    if (i < x_d1) out[row + i] = carry + sum;
    carry += __shfl_sync(0xffffffffu, sum, 31);
  }
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) { cumsum<<<x_d0, 32, 0, stream>>>(x, out); }
