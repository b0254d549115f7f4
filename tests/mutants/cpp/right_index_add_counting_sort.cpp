// task: index_add
// expect: right
// kind: sum_order
// why: groups rows by their index first and sums each group in doubles

#include <vector>

extern "C" void launch(const float* x, const int64_t* index, float* out) {
  std::vector<std::vector<int64_t>> members(out_d0);
  for (int64_t i = 0; i < x_d0; i++) members[index[i]].push_back(i);
  for (int64_t g = 0; g < out_d0; g++)
    for (int64_t c = 0; c < x_d1; c++) {
      double sum = 0.0;
      for (int64_t i : members[g]) sum += x[i * x_d1 + c];
      out[g * x_d1 + c] = (float)sum;
    }
}
