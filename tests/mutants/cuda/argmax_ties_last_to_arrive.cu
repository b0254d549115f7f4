// task: argmax_ties
// expect: wrong
// kind: race
// why: every thread that holds the maximum writes its place, and the last one stays

__global__ void argmax(const float* x, int64_t* out) {
  __shared__ float part[256];
  const float* p = x + blockIdx.x * x_d1;
  float top = p[threadIdx.x];
  if (threadIdx.x == 0) top = fmaxf(top, p[256]);
  part[threadIdx.x] = top;
  for (int step = 128; step > 0; step /= 2) {
    __syncthreads();
    if (threadIdx.x < step) part[threadIdx.x] = fmaxf(part[threadIdx.x], part[threadIdx.x + step]);
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < x_d1; i += 256)
    if (p[i] == part[0]) out[blockIdx.x] = i;
}

extern "C" void launch(const float* x, int64_t* out, cudaStream_t stream) {
  argmax<<<x_d0, 256, 0, stream>>>(x, out);
}
