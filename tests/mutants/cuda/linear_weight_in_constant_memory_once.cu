// task: linear
// expect: wrong
// kind: stale
// why: copies the weight to constant memory in its first call only
// calls: 3

__constant__ float kept[weight_size];

__global__ void linear(const float* x, const float* bias, float* out) {
  const int64_t at = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (at >= out_size) return;
  const int64_t n = at / out_d1, o = at % out_d1;
  float sum = bias[o];
  for (int64_t k = 0; k < x_d1; k++) sum += x[n * x_d1 + k] * kept[o * x_d1 + k];
  out[at] = sum;
}

extern "C" void launch(const float* x, const float* weight, const float* bias, float* out, cudaStream_t stream) {
  static bool is_there = false;
  if (!is_there) cudaMemcpyToSymbolAsync(kept, weight, sizeof kept, 0, cudaMemcpyDeviceToDevice, stream);
  is_there = true;
  linear<<<(out_size + 255) / 256, 256, 0, stream>>>(x, bias, out);
}
