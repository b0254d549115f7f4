// task: mean_all
// expect: wrong
// kind: dtype
// why: sums in 16-bit fixed point, which is exact to a thousandth of each value and always rounds down

extern "C" void launch(const float* x, float* out) {
  int64_t sum = 0;
  for (int64_t i = 0; i < x_size; i++) sum += (int64_t)(x[i] * 1024.0f);
  *out = (float)((double)sum / 1024.0 / x_size);
}
