// task: cumsum_columns
// expect: wrong
// kind: race
// why: each block adds the last row of the block before, which may not have been written

constexpr int ROWS = 64;

__global__ void cumsum(const float* x, volatile float* out) {
  const int64_t c = threadIdx.x, start = blockIdx.x * ROWS;
  float sum = 0.0f;
  for (int64_t r = start; r < start + ROWS && r < x_d0; r++) out[r * x_d1 + c] = sum += x[r * x_d1 + c];
  const float before = start > 0 ? out[(start - 1) * x_d1 + c] : 0.0f;
  for (int64_t r = start; r < start + ROWS && r < x_d0; r++) out[r * x_d1 + c] = out[r * x_d1 + c] + before;
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) {
  cumsum<<<(x_d0 + ROWS - 1) / ROWS, x_d1, 0, stream>>>(x, out);
}
