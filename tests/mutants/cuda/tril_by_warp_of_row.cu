// task: tril
// expect: wrong
// kind: edge
// why: decides for a whole group of 32 columns by its first one

__global__ void tril(const float* x, float* out) {
  const int64_t row = blockIdx.x, i = row % x_d1;
  for (int64_t start = 0; start < x_d2; start += 32) {
    const int64_t j = start + threadIdx.x;
    if (j < x_d2) out[row * x_d2 + j] = start <= i + 1 ? x[row * x_d2 + j] : 0.0f;
  }
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) {
  tril<<<x_d0 * x_d1, 32, 0, stream>>>(x, out);
}
