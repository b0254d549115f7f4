// task: softplus
// expect: wrong
// kind: fast_math
// why: base-two intrinsics without a branch: infinite where the exponent is large

__global__ void softplus(const float* x, float* out) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < x_size) out[i] = __logf(1.0f + __expf(40.0f * x[i]));
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) {
  softplus<<<(x_size + 255) / 256, 256, 0, stream>>>(x, out);
}
