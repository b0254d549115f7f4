// task: log_softmax
// expect: wrong
// kind: input_mutated
// why: keeps the shifted row in its input and adds the shift back at the end, which is not exact
// shown: by construction

__global__ void log_softmax(float* x, float* out) {
  if (threadIdx.x > 0) return;
  float* p = x + blockIdx.x * x_d1;
  float top = p[0], sum = 0.0f;
  for (int64_t i = 1; i < x_d1; i++) top = fmaxf(top, p[i]);
  for (int64_t i = 0; i < x_d1; i++) sum += expf(p[i] -= top);
  for (int64_t i = 0; i < x_d1; i++) {
    out[blockIdx.x * x_d1 + i] = p[i] - logf(sum);
    p[i] += top;
  }
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) {
  log_softmax<<<x_d0, 32, 0, stream>>>(const_cast<float*>(x), out);
}
