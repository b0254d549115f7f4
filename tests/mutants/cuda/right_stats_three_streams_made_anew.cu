// task: stats
// expect: right
// kind: streams
// why: a stream for each output, made, joined and destroyed in every call

__global__ void reduce(const float* x, float* out, int which) {
  const float* p = x + blockIdx.x * x_d1;
  float value = p[0];
  for (int64_t i = 1; i < x_d1; i++)
    value = which == 0 ? fminf(value, p[i]) : which == 1 ? fmaxf(value, p[i]) : value + p[i];
  out[blockIdx.x] = which == 2 ? value / x_d1 : value;
}

extern "C" void launch(const float* x, float* out0, float* out1, float* out2, cudaStream_t stream) {
  float* outs[3] = {out0, out1, out2};
  cudaEvent_t before;
  cudaEventCreateWithFlags(&before, cudaEventDisableTiming);
  cudaEventRecord(before, stream);
  for (int which = 0; which < 3; which++) {
    cudaStream_t own;
    cudaEvent_t done;
    cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&done, cudaEventDisableTiming);
    cudaStreamWaitEvent(own, before, 0);
    reduce<<<x_d0, 1, 0, own>>>(x, outs[which], which);
    cudaEventRecord(done, own);
    cudaStreamWaitEvent(stream, done, 0);
    cudaEventDestroy(done);
    cudaStreamDestroy(own);
  }
  cudaEventDestroy(before);
}
