// task: sort
// expect: right
// kind: scratch
// why: a static vector that is cleared and refilled; it grows in the first call only

#include <algorithm>
#include <vector>

static std::vector<float> rows;

extern "C" void launch(const float* x, float* out) {
  rows.clear();
  for (int64_t i = 0; i < x_size; i++) rows.push_back(x[i]);
  for (int64_t r = 0; r < x_d0; r++) std::sort(rows.begin() + r * x_d1, rows.begin() + (r + 1) * x_d1);
  std::copy(rows.begin(), rows.end(), out);
}
