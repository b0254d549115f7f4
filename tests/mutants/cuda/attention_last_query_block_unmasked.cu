// task: attention
// expect: wrong
// kind: edge
// why: the last block of queries takes a path that forgets the mask

__global__ void attention(const float* q, const float* k, const float* v, float* out) {
  const int64_t h = blockIdx.y, i = blockIdx.x * 16 + threadIdx.x;
  if (i >= q_d1) return;
  const bool is_full = (blockIdx.x + 1) * 16 <= q_d1;
  const int64_t seen = is_full ? i + 1 : k_d1;
  float mixed[v_d2] = {}, top = -INFINITY, sum = 0.0f;
  for (int64_t j = 0; j < seen; j++) {
    float dot = 0.0f;
    for (int64_t d = 0; d < q_d2; d++) dot += q[(h * q_d1 + i) * q_d2 + d] * k[(h * k_d1 + j) * k_d2 + d];
    dot *= 0.17677669529f;
    const float higher = fmaxf(top, dot), old = expf(top - higher), fresh = expf(dot - higher);
    sum = sum * old + fresh;
    for (int64_t d = 0; d < v_d2; d++) mixed[d] = mixed[d] * old + fresh * v[(h * v_d1 + j) * v_d2 + d];
    top = higher;
  }
  for (int64_t d = 0; d < v_d2; d++) out[(h * q_d1 + i) * v_d2 + d] = mixed[d] / sum;
}

extern "C" void launch(const float* q, const float* k, const float* v, float* out, cudaStream_t stream) {
  attention<<<dim3((q_d1 + 15) / 16, q_d0), 16, 0, stream>>>(q, k, v, out);
}
