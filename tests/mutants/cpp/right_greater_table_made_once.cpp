// task: greater
// expect: right
// kind: scratch
// why: a static table that is made in the first call and does not depend on inputs

static bool table[256];
static bool ready = false;

extern "C" void launch(const float* x, const float* y, bool* out) {
  if (!ready) {
    for (int i = 0; i < 256; i++) table[i] = i > 127;
    ready = true;
  }
  for (int64_t i = 0; i < x_size; i++) out[i] = table[127 + (x[i] > y[i])];
}
