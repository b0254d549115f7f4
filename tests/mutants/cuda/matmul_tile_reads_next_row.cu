// task: matmul
// expect: wrong
// kind: edge
// why: the last tile of the inner dimension is not cut: it runs into the next row of one operand

constexpr int TILE = 16;

__global__ void matmul(const float* a, const float* b, float* out) {
  __shared__ float ta[TILE][TILE], tb[TILE][TILE];
  const int64_t i = blockIdx.y * TILE + threadIdx.y, j = blockIdx.x * TILE + threadIdx.x;
  float sum = 0.0f;
  for (int64_t t = 0; t < a_d1; t += TILE) {
    const int64_t left = i * a_d1 + t + threadIdx.x, right = (t + threadIdx.y) * b_d1 + j;
    ta[threadIdx.y][threadIdx.x] = left < a_size ? a[left] : 0.0f;
    tb[threadIdx.y][threadIdx.x] = right < b_size ? b[right] : 1.0f;
    __syncthreads();
    for (int k = 0; k < TILE; k++) sum += ta[threadIdx.y][k] * tb[k][threadIdx.x];
    __syncthreads();
  }
  if (i < a_d0 && j < b_d1) out[i * b_d1 + j] = sum;
}

extern "C" void launch(const float* a, const float* b, float* out, cudaStream_t stream) {
  matmul<<<dim3((b_d1 + TILE - 1) / TILE, (a_d0 + TILE - 1) / TILE), dim3(TILE, TILE), 0, stream>>>(a, b, out);
}
