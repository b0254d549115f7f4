// task: nan_max
// expect: right
// kind: nan
// why: hands NaN on by a comparison that is false

__global__ void row_max(const float* x, float* out) {
  float top = x[blockIdx.x * x_d1];
  for (int64_t i = 0; i < x_d1; i++) {
    const float v = x[blockIdx.x * x_d1 + i];
    if (!(v <= top) && top == top) top = v;
  }
  out[blockIdx.x] = top;
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) { row_max<<<x_d0, 1, 0, stream>>>(x, out); }
