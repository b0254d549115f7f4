// task: relu
// expect: wrong
// kind: leak
// why: keeps 4 MB with every call
// shown: by construction

#include <cstdlib>
#include <cstring>

extern "C" void launch(const float* x, float* out) {
  float* scratch = (float*)std::malloc(4 << 20);
  std::memcpy(scratch, x, x_size * sizeof(float));
  std::memset(scratch + x_size, 0, (4 << 20) - x_size * sizeof(float));
  for (int64_t i = 0; i < x_size; i++) out[i] = scratch[i] > 0.0f ? scratch[i] : 0.0f;
}
