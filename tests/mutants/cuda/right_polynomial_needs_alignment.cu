// task: polynomial
// expect: right
// kind: alignment
// why: vectors of four without asking, which every tensor of PyTorch's allows

__device__ float value(float v) { return ((0.3f * v + 1.0f) * v - 2.0f) * v + 0.7f; }

__global__ void polynomial(const float4* x, float4* out) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < x_size / 4) out[i] = make_float4(value(x[i].x), value(x[i].y), value(x[i].z), value(x[i].w));
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) {
  static_assert(x_size % 4 == 0);
  polynomial<<<(x_size / 4 + 127) / 128, 128, 0, stream>>>((const float4*)x, (float4*)out);
}
