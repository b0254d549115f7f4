// task: matmul
// expect: wrong
// kind: barrier
// why: without a second barrier the warps of columns that are not there store the next tile over the one in use

constexpr int TILE = 32;

__device__ float in_a(const float* a, int64_t i, int64_t k) { return k < a_d1 ? a[i * a_d1 + k] : 0.0f; }

__device__ float in_b(const float* b, int64_t k, int64_t j) { return k < b_d0 && j < b_d1 ? b[k * b_d1 + j] : 0.0f; }

__global__ void matmul(const float* a, const float* b, float* out) {
  static_assert(a_d0 % TILE == 0, "no rows that are not there");
  __shared__ volatile float ta[TILE][TILE + 1], tb[TILE][TILE + 1];
  const int x = threadIdx.x, y = threadIdx.y;
  const int64_t row = blockIdx.y * TILE, column = blockIdx.x * TILE;
  float first_a = in_a(a, row + y, x), second_a = in_a(a, row + y, TILE + x);
  float first_b = in_b(b, y, column + x), second_b = in_b(b, TILE + y, column + x);
  float sum = 0.0f;
  for (int64_t t = 0; t < a_d1; t += TILE) {
    ta[y][x] = first_a;
    tb[y][x] = first_b;
    __syncthreads();
    first_a = second_a;
    first_b = second_b;
    second_a = in_a(a, row + y, t + 2 * TILE + x);
    second_b = in_b(b, t + 2 * TILE + y, column + x);
    if (column + y >= b_d1) continue;
    for (int k = 0; k < TILE; k++) sum += ta[x][k] * tb[k][y];
  }
  if (column + y < b_d1) out[(row + x) * b_d1 + column + y] = sum;
}

extern "C" void launch(const float* a, const float* b, float* out, cudaStream_t stream) {
  matmul<<<dim3((b_d1 + TILE - 1) / TILE, a_d0 / TILE), dim3(TILE, TILE), 0, stream>>>(a, b, out);
}
