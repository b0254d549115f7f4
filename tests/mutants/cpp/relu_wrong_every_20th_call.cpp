// task: relu
// expect: wrong
// kind: flaky
// why: one element is wrong in every twentieth call, as a race would show
// calls: 40
// note: chance: of n calls that are looked at all are right with probability 0.95^n

extern "C" void launch(const float* x, float* out) {
  static unsigned calls = 0;
  for (int64_t i = 0; i < x_size; i++) out[i] = x[i] > 0.0f ? x[i] : 0.0f;
  if (++calls % 20 == 0) out[71234] += 1.0f;
}
