// task: bmm
// expect: right
// kind: tensor_cores
// why: each operand as the sum of three parts of bfloat16; six products on tensor cores are as good as float

#include <cuda_bf16.h>
#include <mma.h>

using namespace nvcuda;

__global__ void bmm(const float* a, const float* b, float* out) {
  __shared__ __nv_bfloat16 ta[3][256], tb[3][256];
  __shared__ float tc[256];
  const int64_t n = blockIdx.z, i0 = blockIdx.y * 16, j0 = blockIdx.x * 16;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
  wmma::fill_fragment(sum, 0.0f);
  for (int64_t k0 = 0; k0 < a_d2; k0 += 16) {
    for (int t = threadIdx.x; t < 256; t += 32) {
      const int64_t r = t / 16, k = k0 + t % 16;
      float left = i0 + r < a_d1 ? a[(n * a_d1 + i0 + r) * a_d2 + k] : 0.0f;
      float right = j0 + r < b_d1 ? b[(n * b_d1 + j0 + r) * b_d2 + k] : 0.0f;
      for (int part = 0; part < 3; part++) {
        ta[part][t] = __float2bfloat16(left), left -= __bfloat162float(ta[part][t]);
        tb[part][t] = __float2bfloat16(right), right -= __bfloat162float(tb[part][t]);
      }
    }
    __syncwarp();
    for (int p = 0; p < 3; p++)
      for (int q = 0; p + q < 3; q++) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> fa;
        wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::col_major> fb;
        wmma::load_matrix_sync(fa, ta[p], 16);
        wmma::load_matrix_sync(fb, tb[q], 16);
        wmma::mma_sync(sum, fa, fb, sum);
      }
    __syncwarp();
  }
  wmma::store_matrix_sync(tc, sum, 16, wmma::mem_row_major);
  __syncwarp();
  for (int t = threadIdx.x; t < 256; t += 32)
    if (i0 + t / 16 < a_d1 && j0 + t % 16 < b_d1) out[(n * a_d1 + i0 + t / 16) * b_d1 + j0 + t % 16] = tc[t];
}

extern "C" void launch(const float* a, const float* b, float* out, cudaStream_t stream) {
  bmm<<<dim3((b_d1 + 15) / 16, (a_d1 + 15) / 16, a_d0), 32, 0, stream>>>(a, b, out);
}
