// task: permute
// expect: wrong
// kind: strides
// why: writes a tile with rows of 33 and reads it with rows of 32

__global__ void permute(const float* x, float* out) {
  __shared__ float tile[32 * 33];
  const int64_t inner = x_d2, outer = x_d0 * x_d1;
  int64_t r = blockIdx.y * 32 + threadIdx.y, c = blockIdx.x * 32 + threadIdx.x;
  tile[threadIdx.y * 33 + threadIdx.x] = r < outer && c < inner ? x[r * inner + c] : 0.0f;
  __syncthreads();
  r = blockIdx.y * 32 + threadIdx.x, c = blockIdx.x * 32 + threadIdx.y;
  if (r < outer && c < inner) out[c * outer + r] = tile[threadIdx.x * 32 + threadIdx.y];
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) {
  permute<<<dim3((x_d2 + 31) / 32, (x_d0 * x_d1 + 31) / 32), dim3(32, 32), 0, stream>>>(x, out);
}
