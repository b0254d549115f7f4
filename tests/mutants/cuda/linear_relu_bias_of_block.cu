// task: linear_relu
// expect: wrong
// kind: bias
// why: adds the bias of the thread in its block and not of the feature

__global__ void linear(const float* x, const float* weight, const float* bias, float* out) {
  const int64_t o = blockIdx.x * blockDim.x + threadIdx.x, n = blockIdx.y;
  if (o >= out_d1) return;
  float sum = bias[threadIdx.x];
  for (int64_t k = 0; k < x_d1; k++) sum += x[n * x_d1 + k] * weight[o * x_d1 + k];
  out[n * out_d1 + o] = fmaxf(sum, 0.0f);
}

extern "C" void launch(const float* x, const float* linear_weight, const float* linear_bias, float* out,
                       cudaStream_t stream) {
  linear<<<dim3((out_d1 + 31) / 32, x_d0), 32, 0, stream>>>(x, linear_weight, linear_bias, out);
}
