// task: matmul
// expect: right
// kind: tensor_cores
// why: TF32 of high and low parts: three products on tensor cores

#include <mma.h>

using namespace nvcuda;

__global__ void matmul(const float* a, const float* b, float* out) {
  __shared__ float ha[128], la[128], hb[128], lb[128], tc[256];
  const int64_t i0 = blockIdx.y * 16, j0 = blockIdx.x * 16;
  wmma::fragment<wmma::accumulator, 16, 16, 8, float> sum;
  wmma::fill_fragment(sum, 0.0f);
  for (int64_t k0 = 0; k0 < a_d1; k0 += 8) {
    for (int t = threadIdx.x; t < 128; t += 32) {
      const float left = i0 + t / 8 < a_d0 ? a[(i0 + t / 8) * a_d1 + k0 + t % 8] : 0.0f;
      const float right = j0 + t % 16 < b_d1 ? b[(k0 + t / 16) * b_d1 + j0 + t % 16] : 0.0f;
      ha[t] = wmma::__float_to_tf32(left), la[t] = wmma::__float_to_tf32(left - ha[t]);
      hb[t] = wmma::__float_to_tf32(right), lb[t] = wmma::__float_to_tf32(right - hb[t]);
    }
    __syncwarp();
    wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> fha, fla;
    wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::row_major> fhb, flb;
    wmma::load_matrix_sync(fha, ha, 8);
    wmma::load_matrix_sync(fla, la, 8);
    wmma::load_matrix_sync(fhb, hb, 16);
    wmma::load_matrix_sync(flb, lb, 16);
    wmma::mma_sync(sum, fla, fhb, sum);
    wmma::mma_sync(sum, fha, flb, sum);
    wmma::mma_sync(sum, fha, fhb, sum);
    __syncwarp();
  }
  wmma::store_matrix_sync(tc, sum, 16, wmma::mem_row_major);
  __syncwarp();
  for (int t = threadIdx.x; t < 256; t += 32)
    if (i0 + t / 16 < a_d0 && j0 + t % 16 < b_d1) out[(i0 + t / 16) * b_d1 + j0 + t % 16] = tc[t];
}

extern "C" void launch(const float* a, const float* b, float* out, cudaStream_t stream) {
  static_assert(a_d1 % 8 == 0);
  matmul<<<dim3((b_d1 + 15) / 16, (a_d0 + 15) / 16), 32, 0, stream>>>(a, b, out);
}
