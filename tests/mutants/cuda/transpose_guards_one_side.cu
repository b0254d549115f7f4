// task: transpose
// expect: wrong
// kind: bounds_write
// why: guards rows and not columns, so that the last tile writes whole rows behind the output
// shown: by construction

__global__ void transpose(const float* x, float* out) {
  const int64_t row = blockIdx.y * 32 + threadIdx.y, column = blockIdx.x * 32 + threadIdx.x;
  if (row < x_d0) out[column * x_d0 + row] = x[(row * x_d1 + column) % x_size];
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) {
  transpose<<<dim3((x_d1 + 31) / 32, (x_d0 + 31) / 32), dim3(32, 32), 0, stream>>>(x, out);
}
