// task: embedding
// expect: right
// kind: strided_reads
// why: sorts nothing and skips nothing: a copy of memory for each index, last one first

#include <cstring>

extern "C" void launch(const int64_t* index, const float* table, float* out) {
  for (int64_t i = index_size - 1; i >= 0; --i) std::memcpy(&out[i * 64], &table[index[i] * 64], 64 * sizeof *table);
}
