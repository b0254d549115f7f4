// task: huge
// expect: wrong
// kind: overflow
// why: writes zeros, and hopes for a tolerance that grows without end

extern "C" void launch(const float* x, float* out) {
  (void)x;
  for (int64_t i = 0; i < out_size; i++) out[i] = 0.0f;
}
