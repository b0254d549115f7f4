// task: transpose
// expect: wrong
// kind: barrier
// why: reads a tile that other warps may not have written yet

__global__ void transpose(const float* x, float* out) {
  __shared__ volatile float tile[32][33];
  int64_t row = blockIdx.y * 32 + threadIdx.y, column = blockIdx.x * 32 + threadIdx.x;
  if (row < x_d0 && column < x_d1) tile[threadIdx.y][threadIdx.x] = x[row * x_d1 + column];
  row = blockIdx.y * 32 + threadIdx.x, column = blockIdx.x * 32 + threadIdx.y;
  if (row < x_d0 && column < x_d1) out[column * x_d0 + row] = tile[threadIdx.x][threadIdx.y];
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) {
  transpose<<<dim3((x_d1 + 31) / 32, (x_d0 + 31) / 32), dim3(32, 32), 0, stream>>>(x, out);
}
