// task: relu
// expect: wrong
// kind: bounds_write
// why: no guard: the last block of 256 reads and writes 93 floats past the end
// shown: by construction

__global__ void relu(const float* x, float* out) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  out[i] = x[i] > 0.0f ? x[i] : 0.0f;
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) {
  relu<<<(x_size + 255) / 256, 256, 0, stream>>>(x, out);
}
