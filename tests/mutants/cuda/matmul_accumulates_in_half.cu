// task: matmul
// expect: wrong
// kind: half_sums
// why: sums of halves

#include <cuda_fp16.h>

__global__ void matmul(const float* a, const float* b, float* out) {
  const int64_t at = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (at >= out_size) return;
  const int64_t i = at / b_d1, j = at % b_d1;
  __half sum = __float2half(0.0f);
  for (int64_t k = 0; k < a_d1; k++)
    sum = __hfma(__float2half(a[i * a_d1 + k]), __float2half(b[k * b_d1 + j]), sum);
  out[at] = __half2float(sum);
}

extern "C" void launch(const float* a, const float* b, float* out, cudaStream_t stream) {
  matmul<<<(out_size + 127) / 128, 128, 0, stream>>>(a, b, out);
}
