// task: embedding
// expect: wrong
// kind: dtype
// why: keeps the index in eight bits: rows from 256 on wrap around

extern "C" void launch(const int64_t* index, const float* table, float* out) {
  for (int64_t i = 0; i < index_size; i++) {
    const uint8_t row = (uint8_t)index[i];
    for (int64_t c = 0; c < table_d1; c++) out[i * table_d1 + c] = table[row * table_d1 + c];
  }
}
