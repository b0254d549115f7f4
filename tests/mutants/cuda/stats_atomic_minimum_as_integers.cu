// task: stats
// expect: wrong
// kind: drawn_values
// why: minimum and maximum by atomics on the bits as integers, which orders negative floats in reverse

__global__ void stats(const float* x, int* low, int* high, float* mean) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i >= x_size) return;
  atomicMin(&low[i / x_d1], __float_as_int(x[i]));
  atomicMax(&high[i / x_d1], __float_as_int(x[i]));
  atomicAdd(&mean[i / x_d1], x[i] / x_d1);
}

__global__ void start(float* low, float* high, float* mean) {
  low[threadIdx.x] = INFINITY, high[threadIdx.x] = -INFINITY, mean[threadIdx.x] = 0.0f;
}

extern "C" void launch(const float* x, float* out0, float* out1, float* out2, cudaStream_t stream) {
  start<<<1, x_d0, 0, stream>>>(out0, out1, out2);
  stats<<<(x_size + 255) / 256, 256, 0, stream>>>(x, (int*)out0, (int*)out1, out2);
}
