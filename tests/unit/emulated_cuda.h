// CUDA kernels on a CPU: one fibre a thread, one block after the other. Barriers and shuffles switch fibres.
#pragma once
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

using namespace std;

#define __global__ static
#define __device__ static
#define __shared__ static

struct dim3 {
  unsigned x, y, z;
  dim3(int64_t x = 1, int64_t y = 1, int64_t z = 1) : x(x), y(y), z(z) {}
};
struct float4 {
  float x, y, z, w;
};
typedef int cudaStream_t;

static dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulated {
struct Fibre {
  ucontext_t context;
  bool done = false;
  int phase = 0, warp_phase = 0;  // barriers and shuffles passed
  vector<char> stack;
};
static ucontext_t scheduler;
static vector<Fibre> fibres;
static vector<double> slots;
static int current;
static function<void()> body;

static void enter() {
  body();
  fibres[current].done = true;
  swapcontext(&fibres[current].context, &scheduler);
}

static void let_others_run() { swapcontext(&fibres[current].context, &scheduler); }

// Waits until every fibre from first to last that still runs has come as far.
static void wait(int first, int last, int Fibre::*phase) {
  const int self = current, mine = ++(fibres[self].*phase);
  for (;;) {
    bool all = true;
    for (int f = first; f < last; f++) all = all && (fibres[f].done || fibres[f].*phase >= mine);
    if (all) return;
    let_others_run();
  }
}

static void run_block() {
  const int num = blockDim.x * blockDim.y;
  if ((int)fibres.size() < num) {
    fibres.resize(num);
    slots.resize(num);
  }
  for (int f = 0; f < num; f++) {
    Fibre& fibre = fibres[f];
    fibre.done = false;
    fibre.phase = fibre.warp_phase = 0;
    if (fibre.stack.empty()) fibre.stack.resize(1 << 16);
    getcontext(&fibre.context);
    fibre.context.uc_stack.ss_sp = fibre.stack.data();
    fibre.context.uc_stack.ss_size = fibre.stack.size();
    fibre.context.uc_link = nullptr;
    makecontext(&fibre.context, enter, 0);
  }
  for (bool busy = true; busy;) {
    busy = false;
    for (int f = 0; f < num; f++) {
      if (fibres[f].done) continue;
      busy = true;
      current = f;
      threadIdx = dim3(f % blockDim.x, f / blockDim.x);
      swapcontext(&scheduler, &fibres[f].context);
    }
  }
  for (int f = num; f < (int)fibres.size(); f++) fibres[f].done = true;
}

static void launch(dim3 grid, dim3 block, function<void()> kernel) {
  gridDim = grid, blockDim = block, body = kernel;
  for (unsigned y = 0; y < grid.y; y++)
    for (unsigned x = 0; x < grid.x; x++) {
      blockIdx = dim3(x, y);
      run_block();
    }
}

static double exchange(double value, int lane) {
  const int self = current, first = self / 32 * 32;
  const int last = min<int>(first + 32, blockDim.x * blockDim.y);
  slots[self] = value;
  wait(first, last, &Fibre::warp_phase);
  const double got = slots[first + lane];
  wait(first, last, &Fibre::warp_phase);
  return got;
}
}  // namespace emulated

#define __syncthreads() emulated::wait(0, blockDim.x* blockDim.y, &emulated::Fibre::phase)
#define __activemask() 0xffffffffu
template <class T>
static T __shfl_xor_sync(unsigned, T v, int mask) {
  return emulated::exchange(v, (emulated::current % 32) ^ mask);
}
template <class T>
static T __shfl_sync(unsigned, T v, int lane) {
  return emulated::exchange(v, lane);
}
template <class T>
static T __shfl_up_sync(unsigned, T v, int by) {
  const int lane = emulated::current % 32;
  return emulated::exchange(v, lane >= by ? lane - by : lane);
}
template <class T>
static T __shfl_down_sync(unsigned, T v, int by) {
  const int lane = emulated::current % 32;
  return emulated::exchange(v, lane + by < 32 ? lane + by : lane);
}
static float atomicAdd(float* place, float v) {
  const float old = *place;
  *place += v;
  return old;
}
#define __expf expf
#define __logf logf
template <class T>
static int cudaMalloc(T** pointer, size_t size) {
  *pointer = (T*)malloc(size);
  memset((void*)*pointer, 0xff, size);
  return 0;
}
static int cudaMemsetAsync(void* pointer, int value, size_t size, cudaStream_t) {
  memset(pointer, value, size);
  return 0;
}
