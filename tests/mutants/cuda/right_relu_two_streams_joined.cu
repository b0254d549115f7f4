// task: relu
// expect: right
// kind: streams
// why: half of the work on a stream of its own that waits before and is waited for

__global__ void relu(const float* x, float* out, int64_t n) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < n) out[i] = fmaxf(x[i], 0.0f);
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) {
  static cudaStream_t side = nullptr;
  static cudaEvent_t before, after;
  if (side == nullptr) {
    cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&before, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&after, cudaEventDisableTiming);
  }
  const int64_t half = x_size / 2, rest = x_size - half;
  cudaEventRecord(before, stream);
  cudaStreamWaitEvent(side, before, 0);
  relu<<<(half + 255) / 256, 256, 0, side>>>(x, out, half);
  relu<<<(rest + 255) / 256, 256, 0, stream>>>(x + half, out + half, rest);
  cudaEventRecord(after, side);
  cudaStreamWaitEvent(stream, after, 0);
}
