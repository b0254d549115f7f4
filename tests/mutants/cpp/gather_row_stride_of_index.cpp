// task: gather
// expect: wrong
// kind: strides
// why: finds the row of the source with the width of the index

extern "C" void launch(const float* x, const int64_t* index, float* out) {
  for (int64_t r = 0; r < index_d0; r++)
    for (int64_t i = 0; i < index_d1; i++) out[r * index_d1 + i] = x[r * index_d1 + index[r * index_d1 + i]];
}
