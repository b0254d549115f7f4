// task: huge
// expect: right
// kind: overflow
// why: two products with a thousand million, whose results are as large as they should be

extern "C" void launch(const float* x, float* out) {
  for (int64_t i = 0; i < x_size; i++) out[i] = x[i] * 1e9f * 1e9f;
}
