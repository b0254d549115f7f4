// task: sum_rows
// expect: right
// kind: sum_order
// why: one thread a row, a sum after Kahan

__global__ void sum_rows(const float* x, float* out) {
  float sum = 0.0f, lost = 0.0f;
  for (int64_t i = 0; i < x_d1; i++) {
    const float term = __fsub_rn(x[blockIdx.x * x_d1 + i], lost), next = __fadd_rn(sum, term);
    lost = __fsub_rn(__fsub_rn(next, sum), term);
    sum = next;
  }
  out[blockIdx.x] = sum;
}

extern "C" void launch(const float* x, float* out, cudaStream_t stream) { sum_rows<<<x_d0, 1, 0, stream>>>(x, out); }
