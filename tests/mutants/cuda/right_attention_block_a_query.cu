// task: attention
// expect: right
// kind: two_pass
// why: scores in shared memory, masked keys never read

__global__ void attention(const float* q, const float* k, const float* v, float* out) {
  __shared__ float score[64];
  const int64_t h = blockIdx.y, i = blockIdx.x, t = threadIdx.x;
  float dot = -INFINITY;
  if (t <= i) {
    dot = 0.0f;
    for (int64_t d = 0; d < q_d2; d++) dot += q[(h * q_d1 + i) * q_d2 + d] * k[(h * k_d1 + t) * k_d2 + d];
    dot *= rsqrtf(32.0f);
  }
  score[t] = dot;
  __syncthreads();
  if (t >= v_d2) return;
  float top = -INFINITY, sum = 0.0f, mixed = 0.0f;
  for (int64_t j = 0; j <= i; j++) top = fmaxf(top, score[j]);
  for (int64_t j = 0; j <= i; j++) {
    const float weight = expf(score[j] - top);
    sum += weight;
    mixed += weight * v[(h * v_d1 + j) * v_d2 + t];
  }
  out[(h * q_d1 + i) * v_d2 + t] = mixed / sum;
}

extern "C" void launch(const float* q, const float* k, const float* v, float* out, cudaStream_t stream) {
  attention<<<dim3(q_d1, q_d0), 64, 0, stream>>>(q, k, v, out);
}
