// task: argmax
// expect: wrong
// kind: dtype
// why: writes indices of 32 bits into a tensor of 64

extern "C" void launch(const float* x, int64_t* out) {
  int32_t* narrow = reinterpret_cast<int32_t*>(out);
  for (int64_t i = 0; i < 2 * out_size; i++) narrow[i] = 0;
  for (int64_t r = 0; r < x_d0; r++)
    for (int64_t i = 1; i < x_d1; i++)
      if (x[r * x_d1 + i] > x[r * x_d1 + narrow[r]]) narrow[r] = (int32_t)i;
}
