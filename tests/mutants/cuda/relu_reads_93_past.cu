// task: relu
// expect: wrong
// kind: bounds_read
// why: guards its store and not its load
// shown: by construction
// note: what it reads lies in the same page and changes no result: compute-sanitizer (judge.memcheck) sees it

__global__ void relu(const volatile float* x, float* out) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  const float value = x[i];
  if (i < x_size) out[i] = fmaxf(value, 0.0f);
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) {
  relu<<<(x_size + 255) / 256, 256, 0, stream>>>(x, out);
}
