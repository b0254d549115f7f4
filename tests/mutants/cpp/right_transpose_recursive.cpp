// task: transpose
// expect: right
// kind: order
// why: splits the longer side until a block fits anywhere

static void block(const float* x, float* out, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  if (r1 - r0 <= 8 && c1 - c0 <= 8) {
    for (int64_t r = r0; r < r1; r++)
      for (int64_t c = c0; c < c1; c++) out[c * x_d0 + r] = x[r * x_d1 + c];
  } else if (r1 - r0 > c1 - c0) {
    block(x, out, r0, (r0 + r1) / 2, c0, c1);
    block(x, out, (r0 + r1) / 2, r1, c0, c1);
  } else {
    block(x, out, r0, r1, c0, (c0 + c1) / 2);
    block(x, out, r0, r1, (c0 + c1) / 2, c1);
  }
}

extern "C" void launch(const float* x, float* out) { block(x, out, 0, x_d0, 0, x_d1); }
