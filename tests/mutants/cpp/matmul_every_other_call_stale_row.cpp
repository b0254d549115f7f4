// task: matmul
// expect: wrong
// kind: flaky
// why: two buffers take turns, and the last row comes from the one of the call before
// calls: 6

static float buffers[2][b_d1];
static int turn = 0;

extern "C" void launch(const float* a, const float* b, float* out) {
  turn ^= 1;
  for (int64_t i = 0; i < a_d0; i++) {
    float* row = buffers[turn];
    for (int64_t j = 0; j < b_d1; j++) row[j] = 0.0f;
    for (int64_t k = 0; k < a_d1; k++)
      for (int64_t j = 0; j < b_d1; j++) row[j] += a[i * a_d1 + k] * b[k * b_d1 + j];
    const float* ready = i + 1 < a_d0 ? row : buffers[0];
    for (int64_t j = 0; j < b_d1; j++) out[i * b_d1 + j] = ready[j];
  }
}
