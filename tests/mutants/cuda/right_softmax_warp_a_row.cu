// task: softmax
// expect: right
// kind: sum_order
// why: two columns a lane, idle lanes with minus infinity

__global__ void softmax(const float* x, float* out) {
  const int64_t row = blockIdx.x * blockDim.y + threadIdx.y;
  if (row >= x_d0) return;
  const float* p = x + row * x_d1;
  const int other = threadIdx.x + 32;
  const float a = p[threadIdx.x], b = other < x_d1 ? p[other] : -INFINITY;
  float top = fmaxf(a, b);
  for (int step = 16; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
  const float ea = expf(a - top), eb = expf(b - top);
  float sum = ea + eb;
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  out[row * x_d1 + threadIdx.x] = ea / sum;
  if (other < x_d1) out[row * x_d1 + other] = eb / sum;
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) {
  softmax<<<(x_d0 + 3) / 4, dim3(32, 4), 0, stream>>>(x, out);
}
