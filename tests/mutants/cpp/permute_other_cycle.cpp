// task: permute
// expect: wrong
// kind: axis
// why: turns the axes the other way round

extern "C" void launch(const float* x, float* out) {
  for (int64_t i = 0; i < x_d0; i++)
    for (int64_t j = 0; j < x_d1; j++)
      for (int64_t k = 0; k < x_d2; k++) out[(j * x_d2 + k) * x_d0 + i] = x[(i * x_d1 + j) * x_d2 + k];
}
