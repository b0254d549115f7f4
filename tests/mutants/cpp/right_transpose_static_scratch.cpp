// task: transpose
// expect: right
// kind: scratch
// why: a static buffer that is filled anew in every call

static float columns[x_size];

extern "C" void launch(const float* x, float* out) {
  for (int64_t j = 0; j < x_d1; j++)
    for (int64_t i = 0; i < x_d0; i++) columns[j * x_d0 + i] = x[i * x_d1 + j];
  for (int64_t i = 0; i < x_size; i++) out[i] = columns[i];
}
