// task: conv2d
// expect: right
// kind: scratch
// why: patches as columns in scratch memory, then a matrix product

#include <vector>

extern "C" void launch(const float* x, const float* conv_weight, const float* conv_bias, float* out) {
  constexpr int64_t depth = x_d1 * 9, pixels = out_d2 * out_d3;
  std::vector<float> columns(depth * pixels);
  for (int64_t n = 0; n < x_d0; n++) {
    for (int64_t d = 0; d < depth; d++)
      for (int64_t p = 0; p < pixels; p++) {
        const int64_t h = p / out_d3 + d % 9 / 3 - 1, w = p % out_d3 + d % 3 - 1;
        const bool inside = h >= 0 && h < x_d2 && w >= 0 && w < x_d3;
        columns[d * pixels + p] = inside ? x[((n * x_d1 + d / 9) * x_d2 + h) * x_d3 + w] : 0.0f;
      }
    for (int64_t o = 0; o < out_d1; o++) {
      float* plane = out + (n * out_d1 + o) * pixels;
      for (int64_t p = 0; p < pixels; p++) plane[p] = conv_bias[o];
      for (int64_t d = 0; d < depth; d++)
        for (int64_t p = 0; p < pixels; p++) plane[p] += conv_weight[o * depth + d] * columns[d * pixels + p];
    }
  }
}
