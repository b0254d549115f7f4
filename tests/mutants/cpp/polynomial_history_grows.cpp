// task: polynomial
// expect: wrong
// kind: leak
// why: a static list keeps a copy of every result
// shown: by construction

#include <vector>

static std::vector<std::vector<float>> history;

extern "C" void launch(const float* x, float* out) {
  history.emplace_back(x_size);
  std::vector<float>& y = history.back();
  for (int64_t i = 0; i < x_size; i++) y[i] = ((0.3f * x[i] + 1.0f) * x[i] - 2.0f) * x[i] + 0.7f;
  for (int64_t i = 0; i < x_size; i++) out[i] = y[i];
}
