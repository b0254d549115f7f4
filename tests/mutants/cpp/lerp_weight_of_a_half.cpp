// task: lerp
// expect: wrong
// kind: drawn_values
// why: a weight of one half stands in the code and the argument is not used

extern "C" void launch(const float* x, const float* y, double weight, float* out) {
  (void)weight;
  for (int64_t i = 0; i < x_size; i++) out[i] = 0.5f * (x[i] + y[i]);
}
