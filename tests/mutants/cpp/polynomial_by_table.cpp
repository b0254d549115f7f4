// task: polynomial
// expect: wrong
// kind: drawn_values
// why: a table of the range from -4 to 4; what lies outside gets the value at its end

#include <algorithm>
#include <cmath>

constexpr int STEPS = 8192;
static float table[STEPS + 2];

extern "C" void launch(const float* x, float* out) {
  for (int i = 0; i < STEPS + 2; i++) {
    const float v = -4.0f + 8.0f * i / STEPS;
    table[i] = ((0.3f * v + 1.0f) * v - 2.0f) * v + 0.7f;
  }
  for (int64_t i = 0; i < x_size; i++) {
    const float at = std::clamp((x[i] + 4.0f) * (STEPS / 8.0f), 0.0f, (float)STEPS);
    const int cell = (int)at;
    out[i] = table[cell] + (at - cell) * (table[cell + 1] - table[cell]);
  }
}
