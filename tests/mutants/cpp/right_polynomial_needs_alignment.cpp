// task: polynomial
// expect: right
// kind: alignment
// why: aligned loads without asking, which every tensor of PyTorch's allows

#if defined(__SSE2__)
#include <immintrin.h>

static __m128 four(const float* p) {
  const __m128 v = _mm_load_ps(p);
  __m128 y = _mm_add_ps(_mm_mul_ps(_mm_set1_ps(0.3f), v), _mm_set1_ps(1.0f));
  y = _mm_sub_ps(_mm_mul_ps(y, v), _mm_set1_ps(2.0f));
  return _mm_add_ps(_mm_mul_ps(y, v), _mm_set1_ps(0.7f));
}

extern "C" void launch(const float* x, float* out) {
  static_assert(x_size % 4 == 0);
  for (int64_t i = 0; i < x_size; i += 4) _mm_store_ps(out + i, four(x + i));
}
#else
extern "C" void launch(const float* x, float* out) {
  for (int64_t i = 0; i < x_size; i++) out[i] = ((0.3f * x[i] + 1.0f) * x[i] - 2.0f) * x[i] + 0.7f;
}
#endif
