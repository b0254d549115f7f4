// task: softmax
// expect: wrong
// kind: tail
// why: a warp a row, one column a lane: of 61 columns the last 29 are neither summed nor written

__global__ void softmax(const float* x, float* out) {
  const int64_t row = blockIdx.x * blockDim.y + threadIdx.y;
  if (row >= x_d0) return;
  const float value = x[row * x_d1 + threadIdx.x];
  float top = value;
  for (int step = 16; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
  float sum = expf(value - top);
  const float own = sum;
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  out[row * x_d1 + threadIdx.x] = own / sum;
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) {
  softmax<<<(x_d0 + 7) / 8, dim3(32, 8), 0, stream>>>(x, out);
}
