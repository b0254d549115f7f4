// task: mean_all
// expect: right
// kind: sum_order
// why: means of blocks of a thousand, then a weighted mean of these

extern "C" void launch(const float* x, float* out) {
  double mean = 0.0;
  for (int64_t start = 0; start < x_size; start += 1000) {
    const int64_t n = x_size - start < 1000 ? x_size - start : 1000;
    float block = 0.0f;
    for (int64_t i = 0; i < n; i++) block += (x[start + i] - block) / (i + 1);
    mean += (double)block * n / x_size;
  }
  *out = (float)mean;
}
