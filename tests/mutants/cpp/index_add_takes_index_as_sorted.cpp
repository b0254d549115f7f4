// task: index_add
// expect: wrong
// kind: drawn_values
// why: assumes that equal indices stand together and starts each group anew

extern "C" void launch(const float* x, const int64_t* index, float* out) {
  for (int64_t i = 0; i < out_size; i++) out[i] = 0.0f;
  for (int64_t c = 0; c < x_d1; c++) {
    float sum = 0.0f;
    for (int64_t i = 0; i < x_d0; i++) {
      sum += x[i * x_d1 + c];
      if (i + 1 == x_d0 || index[i + 1] != index[i]) {
        out[index[i] * x_d1 + c] = sum;
        sum = 0.0f;
      }
    }
  }
}
