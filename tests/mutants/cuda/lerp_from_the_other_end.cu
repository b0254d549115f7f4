// task: lerp
// expect: wrong
// kind: formula
// why: the weight goes to the first operand

__global__ void lerp_kernel(const float* x, const float* y, float weight, float* out) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < x_size) out[i] = y[i] + weight * (x[i] - y[i]);
}

extern "C" void launch(const float* x, const float* y, double weight, float* out, cudaStream_t stream) {
  lerp_kernel<<<(x_size + 255) / 256, 256, 0, stream>>>(x, y, (float)weight, out);
}
