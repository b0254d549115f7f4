// task: int_affine
// expect: wrong
// kind: dtype
// why: multiplies in 32 bits

extern "C" void launch(const int64_t* x, int64_t* out) {
  for (int64_t i = 0; i < x_size; i++) out[i] = (int32_t)x[i] * 3 + 7;
}
