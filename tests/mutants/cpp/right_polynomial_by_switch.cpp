// task: polynomial
// expect: right
// kind: order
// why: a loop entered in its middle, as Duff wrote it

extern "C" void launch(const float* x, float* out) {
  const float* end = x + x_size;
#define ONE (*out++ = ((0.3f * *x + 1.0f) * *x - 2.0f) * *x + 0.7f, x++)
  switch (x_size % 8) {
    case 0:
      while (x != end) {
        ONE;
        [[fallthrough]];
        case 7: ONE; [[fallthrough]];
        case 6: ONE; [[fallthrough]];
        case 5: ONE; [[fallthrough]];
        case 4: ONE; [[fallthrough]];
        case 3: ONE; [[fallthrough]];
        case 2: ONE; [[fallthrough]];
        case 1: ONE;
      }
  }
}
