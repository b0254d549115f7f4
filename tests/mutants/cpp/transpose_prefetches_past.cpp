// task: transpose
// expect: wrong
// kind: bounds_read
// why: reads the next element before it knows that there is one: one float past the end
// shown: by construction

extern "C" void launch(const float* x, float* out) {
  const volatile float* from = x;
  float next = from[0];
  for (int64_t i = 0; i < x_size; i++) {
    const float value = next;
    next = from[i + 1];
    out[(i % x_d1) * x_d0 + i / x_d1] = value;
  }
}
