// task: huge
// expect: wrong
// kind: overflow
// why: the sign of one row is wrong, in values whose squares are beyond a float

extern "C" void launch(const float* x, float* out) {
  for (int64_t i = 0; i < x_size; i++) out[i] = x[i] * (i / x_d1 == 77 ? -1e18f : 1e18f);
}
