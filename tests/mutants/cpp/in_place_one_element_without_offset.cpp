// task: in_place
// expect: wrong
// kind: one_element
// why: one element in the middle of the tensor is not offset by one

extern "C" void launch(const float* x, float* out) {
  for (int64_t i = 0; i < x_size; i++) out[i] = 2.0f * x[i] + (i == 51203 ? 0.0f : 1.0f);
}
