// task: embedding
// expect: wrong
// kind: bounds_read
// why: touches the row behind the one it copies, which for the last row of the table is not there
// shown: by construction

#include <cstring>

extern "C" void launch(const int64_t* index, const float* table, float* out) {
  volatile float warmed = 0.0f;
  for (int64_t i = 0; i < index_size; i++) {
    const float* row = table + index[i] * table_d1;
    warmed = *(const volatile float*)(row + table_d1);
    std::memcpy(out + i * table_d1, row, table_d1 * sizeof(float));
  }
  (void)warmed;
}
