// task: mean_all
// expect: right
// kind: atomics
// why: the last block to finish adds up the partial sums, and resets the count that says which one that is

__device__ float partial[64];
__device__ unsigned int finished;

__global__ void mean(const float* x, float* out) {
  __shared__ float part[256];
  __shared__ bool is_last;
  float sum = 0.0f;
  for (int64_t i = blockIdx.x * 256 + threadIdx.x; i < x_size; i += 64 * 256) sum += x[i];
  part[threadIdx.x] = sum;
  for (int step = 128; step > 0; step /= 2) {
    __syncthreads();
    if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
  }
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = part[0];
    __threadfence();
    is_last = atomicAdd(&finished, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (!is_last || threadIdx.x > 0) return;
  float total = 0.0f;
  for (int b = 0; b < 64; b++) total += ((volatile float*)partial)[b];
  *out = total / x_size;
  finished = 0;
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) { mean<<<64, 256, 0, stream>>>(x, out); }
