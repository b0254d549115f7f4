// task: reflect_pad
// expect: wrong
// kind: padding
// why: clamps coordinates, which repeats the edge

__global__ void pad(const float* x, float* out) {
  const int64_t at = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (at >= out_size) return;
  const int64_t j = at % out_d2, i = at / out_d2 % out_d1, c = at / (out_d1 * out_d2);
  const int64_t h = min(max(i - 2, (int64_t)0), x_d1 - 1), w = min(max(j - 3, (int64_t)0), x_d2 - 1);
  out[at] = x[(c * x_d1 + h) * x_d2 + w];
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) {
  pad<<<(out_size + 255) / 256, 256, 0, stream>>>(x, out);
}
