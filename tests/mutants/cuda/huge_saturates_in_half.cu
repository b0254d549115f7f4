// task: huge
// expect: wrong
// kind: overflow
// why: scales in steps through sixteen bits, whose range ends at 65504, and leaves finite values of the wrong size

#include <cuda_fp16.h>

__global__ void scale(const float* x, float* out) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i >= x_size) return;
  const float thousands = fminf(fmaxf(x[i] * 1e6f, -65504.0f), 65504.0f);
  out[i] = __half2float(__float2half(thousands)) * 1e12f;
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) {
  scale<<<(x_size + 255) / 256, 256, 0, stream>>>(x, out);
}
