// task: relu
// expect: wrong
// kind: tail
// why: vectors of four only; three floats at the end are not written

__global__ void relu(const float4* x, float4* out) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i >= x_size / 4) return;
  float4 v = x[i];
  v.x = fmaxf(v.x, 0.0f), v.y = fmaxf(v.y, 0.0f), v.z = fmaxf(v.z, 0.0f), v.w = fmaxf(v.w, 0.0f);
  out[i] = v;
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) {
  relu<<<(x_size / 4 + 255) / 256, 256, 0, stream>>>((const float4*)x, (float4*)out);
}
