// task: mean_all
// expect: wrong
// kind: stale
// why: the last block to finish adds up all partial sums, and never resets the count that tells which one that is
// calls: 3

__device__ float partial[128];
__device__ unsigned int finished;

__global__ void mean(const float* x, float* out) {
  __shared__ float part[256];
  __shared__ bool is_last;
  float sum = 0.0f;
  for (int64_t i = blockIdx.x * 256 + threadIdx.x; i < x_size; i += 128 * 256) sum += x[i];
  part[threadIdx.x] = sum;
  for (int step = 128; step > 0; step /= 2) {
    __syncthreads();
    if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
  }
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = part[0];
    __threadfence();
    is_last = atomicAdd(&finished, 1u) == 127u;
  }
  __syncthreads();
  if (!is_last || threadIdx.x > 0) return;
  double total = 0.0;
  for (int b = 0; b < 128; b++) total += ((volatile float*)partial)[b];
  *out = (float)(total / x_size);
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) { mean<<<128, 256, 0, stream>>>(x, out); }
