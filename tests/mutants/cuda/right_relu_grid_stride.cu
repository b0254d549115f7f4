// task: relu
// expect: right
// kind: strided_reads
// why: one block for everything, each thread with steps of its own

__global__ void relu(const float* x, float* out) {
  for (int64_t i = threadIdx.x; i < x_size; i += blockDim.x) out[i] = fmaxf(x[i], 0.0f);
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) { relu<<<1, 1024, 0, stream>>>(x, out); }
