// task: max_with_index
// expect: right
// kind: atomics
// why: value and place in one key of 64 bits, the largest by atomics

__device__ unsigned int ordered(float v) {
  const unsigned int bits = __float_as_uint(v);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__global__ void seek(const float* x, unsigned long long* keys) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i >= x_size) return;
  const unsigned int place = (unsigned int)(i / x_d2 % x_d1);
  atomicMax(&keys[i / (x_d1 * x_d2) * x_d2 + i % x_d2], (unsigned long long)ordered(x[i]) << 32 | (0xffffffffu - place));
}

__global__ void unpack(const float* x, float* values, int64_t* indices) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i >= out1_size) return;
  const int64_t place = 0xffffffffu - (unsigned int)((unsigned long long)indices[i] & 0xffffffffu);
  indices[i] = place;
  values[i] = x[(i / x_d2 * x_d1 + place) * x_d2 + i % x_d2];
}

extern "C" void launch(const float* x, float* out0, int64_t* out1, cudaStream_t stream) {
  cudaMemsetAsync(out1, 0, out1_size * sizeof(int64_t), stream);
  seek<<<(x_size + 255) / 256, 256, 0, stream>>>(x, (unsigned long long*)out1);
  unpack<<<(out1_size + 255) / 256, 256, 0, stream>>>(x, out0, out1);
}
