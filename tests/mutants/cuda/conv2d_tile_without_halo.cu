// task: conv2d
// expect: wrong
// kind: edge
// why: tiles in shared memory without a margin: at their edges neighbours count as zero

constexpr int TILE = 16;

__global__ void conv(const float* x, const float* weight, const float* bias, float* out) {
  __shared__ float tile[TILE][TILE];
  const int64_t n = blockIdx.z / out_d1, o = blockIdx.z % out_d1;
  const int64_t i = blockIdx.y * TILE + threadIdx.y, j = blockIdx.x * TILE + threadIdx.x;
  const int y = threadIdx.y, z = threadIdx.x;
  float sum = bias[o];
  for (int64_t c = 0; c < x_d1; c++) {
    __syncthreads();
    tile[y][z] = i < x_d2 && j < x_d3 ? x[((n * x_d1 + c) * x_d2 + i) * x_d3 + j] : 0.0f;
    __syncthreads();
    for (int k = 0; k < 3; k++)
      for (int l = 0; l < 3; l++)
        if (y + k >= 1 && y + k <= TILE && z + l >= 1 && z + l <= TILE)
          sum += tile[y + k - 1][z + l - 1] * weight[(o * x_d1 + c) * 9 + k * 3 + l];
  }
  if (i < out_d2 && j < out_d3) out[((n * out_d1 + o) * out_d2 + i) * out_d3 + j] = sum;
}

extern "C" void launch(const float* x, const float* conv_weight, const float* conv_bias, float* out,
                       cudaStream_t stream) {
  const dim3 grid((out_d3 + TILE - 1) / TILE, (out_d2 + TILE - 1) / TILE, out_d0 * out_d1);
  conv<<<grid, dim3(TILE, TILE), 0, stream>>>(x, conv_weight, conv_bias, out);
}
