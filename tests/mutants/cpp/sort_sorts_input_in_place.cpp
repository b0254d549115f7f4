// task: sort
// expect: wrong
// kind: input_mutated
// why: sorts the input itself, then puts the saved rows back
// shown: by construction

#include <algorithm>
#include <vector>

extern "C" void launch(const float* x, float* out) {
  float* w = const_cast<float*>(x);
  std::vector<float> saved(x, x + x_size);
  for (int64_t r = 0; r < x_d0; r++) {
    std::sort(w + r * x_d1, w + (r + 1) * x_d1);
    std::copy(w + r * x_d1, w + (r + 1) * x_d1, out + r * x_d1);
  }
  std::copy(saved.begin(), saved.end(), w);
}
