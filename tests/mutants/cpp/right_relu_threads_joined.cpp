// task: relu
// expect: right
// kind: threads
// why: two threads, joined before it returns
// note: one core is the device: threads of its own would use more than eager has, and are refused (judge.num_threads)

#include <thread>

static void part(const float* x, float* out, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i++) out[i] = x[i] > 0.0f ? x[i] : 0.0f;
}

extern "C" void launch(const float* x, float* out) {
  std::thread other(part, x, out, 0, x_size / 2);
  part(x, out, x_size / 2, x_size);
  other.join();
}
