// task: sort
// expect: wrong
// kind: padding
// why: a bitonic sort of 512 places whose spare ones hold zeros and not infinity

__global__ void bitonic(const float* x, float* out) {
  __shared__ float keys[512];
  const int t = threadIdx.x;
  keys[t] = t < x_d1 ? x[blockIdx.x * x_d1 + t] : 0.0f;
  for (int size = 2; size <= 512; size *= 2)
    for (int step = size / 2; step > 0; step /= 2) {
      __syncthreads();
      const int other = t ^ step;
      if (other > t && (keys[t] > keys[other]) == ((t & size) == 0)) {
        const float kept = keys[t];
        keys[t] = keys[other];
        keys[other] = kept;
      }
    }
  __syncthreads();
  if (t < x_d1) out[blockIdx.x * x_d1 + t] = keys[t];
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) { bitonic<<<x_d0, 512, 0, stream>>>(x, out); }
