// task: argmax
// expect: wrong
// kind: index
// why: the shuffle carries values and each lane keeps its own index

__global__ void argmax(const float* x, int64_t* out) {
  const float* p = x + blockIdx.x * x_d1;
  float top = -INFINITY;
  int best = 0;
  for (int i = threadIdx.x; i < x_d1; i += 32)
    if (p[i] > top) top = p[i], best = i;
  for (int step = 16; step > 0; step /= 2) {
    const float other = __shfl_down_sync(0xffffffffu, top, step);
    if (other > top) top = other, best = best + step;
  }
  if (threadIdx.x == 0) out[blockIdx.x] = best;
}

extern "C" void launch(const float* x, int64_t* out, cudaStream_t stream) {
  argmax<<<x_d0, 32, 0, stream>>>(x, out);
}
