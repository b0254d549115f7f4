// task: int_mod
// expect: wrong
// kind: edge
// why: the remainder of C has the sign of the dividend

extern "C" void launch(const int32_t* x, int32_t* out) {
  for (int64_t i = 0; i < x_size; i++) out[i] = x[i] % 7;
}
