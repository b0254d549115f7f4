// task: bincount
// expect: wrong
// kind: stale
// why: static counters are not reset, so that calls add up
// calls: 3

static int64_t counters[out_size];

extern "C" void launch(const int64_t* x, int64_t* out) {
  for (int64_t i = 0; i < x_size; i++) counters[x[i]]++;
  for (int64_t i = 0; i < out_size; i++) out[i] = counters[i];
}
