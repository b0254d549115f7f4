// task: sum_mid
// expect: wrong
// kind: leak
// why: memory of the stream's pool for partial sums, 4 MB a call, that is not freed
// shown: by construction

__global__ void halves(const float* x, float* sums) {
  const int64_t at = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (at >= 2 * out_size) return;
  const int64_t half = at / out_size, i = at % out_size / x_d2, k = at % x_d2;
  float sum = 0.0f;
  for (int64_t j = half; j < x_d1; j += 2) sum += x[(i * x_d1 + j) * x_d2 + k];
  sums[half * out_size + i * x_d2 + k] = sum;
}

__global__ void join(const float* sums, float* out) {
  const int64_t at = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (at < out_size) out[at] = sums[at] + sums[out_size + at];
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) {
  float* sums;
  cudaMallocAsync((void**)&sums, 4 << 20, stream);
  halves<<<(2 * out_size + 127) / 128, 128, 0, stream>>>(x, sums);
  join<<<(out_size + 127) / 128, 128, 0, stream>>>(sums, out);
}
