// task: layernorm
// expect: right
// kind: sum_order
// why: mean and variance of lanes, joined pair by pair

__global__ void layernorm(const float* x, const float* weight, const float* bias, float* out) {
  const float* p = x + blockIdx.x * x_d1;
  float mean = 0.0f, spread = 0.0f, count = 0.0f;
  for (int64_t i = threadIdx.x; i < x_d1; i += 32) {
    const float apart = p[i] - mean;
    mean += apart / ++count;
    spread += apart * (p[i] - mean);
  }
  for (int step = 1; step < 32; step *= 2) {
    const float other_mean = __shfl_xor_sync(0xffffffffu, mean, step);
    const float other_spread = __shfl_xor_sync(0xffffffffu, spread, step);
    const float other_count = __shfl_xor_sync(0xffffffffu, count, step);
    const float apart = other_mean - mean, both = count + other_count;
    spread += other_spread + apart * apart * count * other_count / both;
    mean = (count * mean + other_count * other_mean) / both;
    count = both;
  }
  const float scale = rsqrtf(spread / x_d1 + 1e-5f);
  for (int64_t i = threadIdx.x; i < x_d1; i += 32) out[blockIdx.x * x_d1 + i] = (p[i] - mean) * scale * weight[i] + bias[i];
}

extern "C" void launch(const float* x, const float* weight, const float* bias, float* out, cudaStream_t stream) {
  layernorm<<<x_d0, 32, 0, stream>>>(x, weight, bias, out);
}
