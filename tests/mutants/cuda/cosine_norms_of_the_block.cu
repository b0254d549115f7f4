// task: cosine
// expect: wrong
// kind: axis
// why: four rows share a block and its sums

__global__ void cosine(const float* x, const float* y, float* out) {
  __shared__ float dot, xx, yy;
  const int64_t row = blockIdx.x * blockDim.y + threadIdx.y;
  if (threadIdx.x == 0 && threadIdx.y == 0) dot = xx = yy = 0.0f;
  __syncthreads();
  for (int64_t i = threadIdx.x; row < x_d0 && i < x_d1; i += 32) {
    const float a = x[row * x_d1 + i], b = y[row * x_d1 + i];
    atomicAdd(&dot, a * b);
    atomicAdd(&xx, a * a);
    atomicAdd(&yy, b * b);
  }
  __syncthreads();
  if (threadIdx.x == 0 && row < x_d0) out[row] = dot * rsqrtf(xx * yy);
}

extern "C" void launch(const float* x, const float* y, float* out, cudaStream_t stream) {
  cosine<<<(x_d0 + 3) / 4, dim3(32, 4), 0, stream>>>(x, y, out);
}
