// task: bmm
// expect: wrong
// kind: half_sums
// why: tensor cores on operands that were rounded to sixteen bits

#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

__global__ void bmm(const float* a, const float* b, float* out) {
  __shared__ __half ta[16 * 16], tb[16 * 16];
  __shared__ float tc[16 * 16];
  const int64_t n = blockIdx.z, i0 = blockIdx.y * 16, j0 = blockIdx.x * 16;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
  wmma::fill_fragment(sum, 0.0f);
  for (int64_t k0 = 0; k0 < a_d2; k0 += 16) {
    for (int t = threadIdx.x; t < 256; t += 32) {
      const int64_t r = t / 16, k = k0 + t % 16;
      ta[t] = __float2half(i0 + r < a_d1 ? a[(n * a_d1 + i0 + r) * a_d2 + k] : 0.0f);
      tb[t] = __float2half(j0 + r < b_d1 ? b[(n * b_d1 + j0 + r) * b_d2 + k] : 0.0f);
    }
    __syncwarp();
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> fb;
    wmma::load_matrix_sync(fa, ta, 16);
    wmma::load_matrix_sync(fb, tb, 16);
    wmma::mma_sync(sum, fa, fb, sum);
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
