// task: matmul
// expect: right
// kind: template
// why: tiles in shared memory, their size a template's argument

template <int TILE>
__global__ void matmul(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out) {
  __shared__ float ta[TILE][TILE + 1], tb[TILE][TILE + 1];
  const int64_t i = blockIdx.y * TILE + threadIdx.y, j = blockIdx.x * TILE + threadIdx.x;
  float sum = 0.0f;
  for (int64_t t = 0; t < a_d1; t += TILE) {
    ta[threadIdx.y][threadIdx.x] = i < a_d0 && t + threadIdx.x < a_d1 ? a[i * a_d1 + t + threadIdx.x] : 0.0f;
    tb[threadIdx.y][threadIdx.x] = t + threadIdx.y < b_d0 && j < b_d1 ? b[(t + threadIdx.y) * b_d1 + j] : 0.0f;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < TILE; k++) sum += ta[threadIdx.y][k] * tb[k][threadIdx.x];
    __syncthreads();
  }
  if (i < a_d0 && j < b_d1) out[i * b_d1 + j] = sum;
}

extern "C" void launch(const float* a, const float* b, float* out, cudaStream_t stream) {
  constexpr int TILE = 16;
  matmul<TILE><<<dim3((b_d1 + TILE - 1) / TILE, (a_d0 + TILE - 1) / TILE), dim3(TILE, TILE), 0, stream>>>(a, b, out);
}
