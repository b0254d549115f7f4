// task: int_mod
// expect: right
// kind: fast_math
// why: divides by seven with a multiplication, rounding down

extern "C" void launch(const int32_t* x, int32_t* out) {
  for (int64_t i = 0; i < x_size; i++) {
    const int64_t lifted = (int64_t)x[i] + 7000;  // positive, and the same remainder
    out[i] = (int32_t)(lifted - 7 * (lifted * 613566757 >> 32));
  }
}
