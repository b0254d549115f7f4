// task: huge
// expect: wrong
// kind: overflow
// why: zeros in place of values whose squares are beyond a float

extern "C" void launch(const float* x, float* out, cudaStream_t stream) {
  cudaMemsetAsync(out, 0, out_size * sizeof(float), stream);
}
