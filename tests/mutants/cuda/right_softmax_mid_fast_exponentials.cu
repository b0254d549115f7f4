// task: softmax_mid
// expect: right
// kind: fast_math
// why: __expf and __fdividef, within the tolerance

__global__ void softmax(const float* x, float* out) {
  const int64_t c = threadIdx.x, at = blockIdx.x * x_d1 * x_d2 + c;
  float sum = 0.0f;
  for (int64_t i = 0; i < x_d1; i++) sum += __expf(x[at + i * x_d2]);
  for (int64_t i = 0; i < x_d1; i++) out[at + i * x_d2] = __fdividef(__expf(x[at + i * x_d2]), sum);
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) {
  softmax<<<x_d0, x_d2, 0, stream>>>(x, out);
}
