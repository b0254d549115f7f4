// task: relu
// expect: wrong
// kind: launch_failure
// why: blocks along y, of which there may be 65,535 and are asked for 100,003

__global__ void relu(const float* x, float* out) { out[blockIdx.y] = x[blockIdx.y] > 0.0f ? x[blockIdx.y] : 0.0f; }

extern "C" void launch(const float* x, float* out, cudaStream_t stream) {
  relu<<<dim3(1, x_size), 1, 0, stream>>>(x, out);
  cudaGetLastError();
}
