// task: relu
// expect: right
// kind: vectors
// why: vectors of four where both addresses allow them, single floats for the rest

__global__ void relu(const float* x, float* out, int64_t vectors) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < vectors) {
    float4 v = reinterpret_cast<const float4*>(x)[i];
    v.x = fmaxf(v.x, 0.0f), v.y = fmaxf(v.y, 0.0f), v.z = fmaxf(v.z, 0.0f), v.w = fmaxf(v.w, 0.0f);
    reinterpret_cast<float4*>(out)[i] = v;
  }
  const int64_t rest = 4 * vectors + i;
  if (rest < x_size) out[rest] = fmaxf(x[rest], 0.0f);
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) {
  const bool aligned = ((uintptr_t)x | (uintptr_t)out) % 16 == 0;
  const int64_t vectors = aligned ? x_size / 4 : 0, threads = aligned ? vectors : x_size;
  relu<<<(threads + 255) / 256, 256, 0, stream>>>(x, out, vectors);
}
