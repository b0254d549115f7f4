// task: int_affine
// expect: wrong
// kind: dtype
// why: passes through float, which has 24 bits

extern "C" void launch(const int64_t* x, int64_t* out) {
  for (int64_t i = 0; i < x_size; i++) out[i] = (int64_t)((float)x[i] * 3.0f + 7.0f);
}
