// task: relu
// expect: right
// kind: vectors
// why: eight at a time where addresses allow it, one at a time for the rest

#if defined(__SSE2__)
#include <immintrin.h>
#endif

extern "C" void launch(const float* x, float* out) {
  int64_t i = 0;
#if defined(__SSE2__)
  const bool aligned = reinterpret_cast<uintptr_t>(x) % 16 == 0 && reinterpret_cast<uintptr_t>(out) % 16 == 0;
  if (aligned)
    for (; i + 8 <= x_size; i += 8) {
      _mm_store_ps(out + i, _mm_max_ps(_mm_load_ps(x + i), _mm_setzero_ps()));
      _mm_store_ps(out + i + 4, _mm_max_ps(_mm_load_ps(x + i + 4), _mm_setzero_ps()));
    }
#endif
  for (; i < x_size; i++) out[i] = x[i] > 0.0f ? x[i] : 0.0f;
}
