// task: relu
// expect: right
// kind: scratch
// why: takes 64 MB in every call, uses a little of it, and gives it back

#include <cstdlib>
#include <cstring>

extern "C" void launch(const float* x, float* out) {
  float* scratch = (float*)std::malloc(64 << 20);
  std::memcpy(scratch + 1000, x, x_size * sizeof(float));
  for (int64_t i = 0; i < x_size; i++) out[i] = scratch[1000 + i] > 0.0f ? scratch[1000 + i] : 0.0f;
  std::free(scratch);
}
