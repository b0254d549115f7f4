// task: argmax_ties
// expect: right
// kind: order
// why: lanes in any order; of equal values the smaller index wins

__global__ void argmax(const float* x, int64_t* out) {
  const float* p = x + blockIdx.x * x_d1;
  float top = -INFINITY;
  int best = 1 << 30;
  for (int i = 31 - threadIdx.x; i < x_d1; i += 32)
    if (p[i] > top) top = p[i], best = i;
  for (int step = 1; step < 32; step *= 2) {
    const float value = __shfl_xor_sync(0xffffffffu, top, step);
    const int place = __shfl_xor_sync(0xffffffffu, best, step);
    if (value > top || (value == top && place < best)) top = value, best = place;
  }
  if (threadIdx.x == 0) out[blockIdx.x] = best;
}

extern "C" void launch(const float* x, int64_t* out, cudaStream_t stream) {
  argmax<<<x_d0, 32, 0, stream>>>(x, out);
}
