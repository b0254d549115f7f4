// task: relu
// expect: wrong
// kind: bounds_write
// why: vectors of four, the last one in full: one float past the end
// shown: by construction

__global__ void relu(const float4* x, float4* out, int64_t vectors) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i >= vectors) return;
  const float4 v = x[i];
  out[i] = make_float4(fmaxf(v.x, 0.0f), fmaxf(v.y, 0.0f), fmaxf(v.z, 0.0f), fmaxf(v.w, 0.0f));
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) {
  const int64_t vectors = (x_size + 3) / 4;
  relu<<<(vectors + 127) / 128, 128, 0, stream>>>((const float4*)x, (float4*)out, vectors);
}
