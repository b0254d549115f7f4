// task: elu
// expect: wrong
// kind: flaky
// why: in every twentieth call one element is negated
// calls: 40
// note: chance: of n calls that are looked at all are right with probability 0.95^n

__global__ void elu(const float* x, float* out, bool is_off) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i >= x_size) return;
  const float y = x[i] > 0.0f ? x[i] : 0.7f * expm1f(x[i]);
  out[i] = is_off && i == 4321 ? y + 0.5f : y;
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) {
  static int calls = 0;
  elu<<<(x_size + 255) / 256, 256, 0, stream>>>(x, out, ++calls % 20 == 0);
}
