// task: transpose
// expect: wrong
// kind: tail
// why: whole tiles of 16 only: 13 rows and one column are never written

extern "C" void launch(const float* x, float* out) {
  for (int64_t i = 0; i < x_d0 / 16; i++)
    for (int64_t j = 0; j < x_d1 / 16; j++)
      for (int64_t k = 0; k < 16; k++)
        for (int64_t l = 0; l < 16; l++) out[(j * 16 + l) * x_d0 + i * 16 + k] = x[(i * 16 + k) * x_d1 + j * 16 + l];
}
