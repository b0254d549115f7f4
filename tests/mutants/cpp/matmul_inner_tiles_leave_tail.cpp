// task: matmul
// expect: wrong
// kind: tail
// why: the inner dimension of 200 goes in tiles of 32, the last eight are left out

extern "C" void launch(const float* a, const float* b, float* out) {
  for (int64_t i = 0; i < out_size; i++) out[i] = 0.0f;
  for (int64_t tile = 0; tile < a_d1 / 32; tile++)
    for (int64_t i = 0; i < a_d0; i++)
      for (int64_t k = tile * 32; k < (tile + 1) * 32; k++)
        for (int64_t j = 0; j < b_d1; j++) out[i * b_d1 + j] += a[i * a_d1 + k] * b[k * b_d1 + j];
}
