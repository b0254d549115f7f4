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
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

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
struct Copy {
  float* to;
  const float* from;
  int size, num_read;  // bytes
};
struct Fibre {
  ucontext_t context;
  vector<Copy> copies;  // on their way
  int num_products = 0;
  uint32_t left[2][4], right[2][2];  // operands of the last two products on tensor cores
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
    fibre.phase = fibre.warp_phase = fibre.num_products = 0;
    fibre.copies.clear();
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
  for (unsigned z = 0; z < grid.z; z++)
    for (unsigned y = 0; y < grid.y; y++)
      for (unsigned x = 0; x < grid.x; x++) {
        blockIdx = dim3(x, y, z);
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
static void __syncwarp() {
  const int first = emulated::current / 32 * 32;
  emulated::wait(first, min<int>(first + 32, blockDim.x * blockDim.y), &emulated::Fibre::warp_phase);
}
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
static uint32_t __float_as_uint(float v) {
  uint32_t bits;
  memcpy(&bits, &v, 4);
  return bits;
}
static float __uint_as_float(uint32_t bits) {
  float v;
  memcpy(&v, &bits, 4);
  return v;
}

// A 32-bit address of shared memory: its distance from a variable of this library.
static char shared_origin;
static size_t __cvta_generic_to_shared(const void* p) { return (const char*)p - &shared_origin; }

// Instructions of PTX, by their names with underscores; writer_fixtures.py puts them in the place of asm.
namespace ptx {
using emulated::Copy;
using emulated::Fibre;

// What is copied arrives when it is waited for; until then there are NaNs. Misaligned copies leave NaNs.
static void cp_async_ca_shared_global(uint32_t to, const float* from, int size, int num_read) {
  float* place = (float*)(&shared_origin + (int32_t)to);
  memset(place, 0xff, size);
  const bool aligned = (uintptr_t)place % size == 0 && (num_read == 0 || (uintptr_t)from % size == 0);
  if (aligned) emulated::fibres[emulated::current].copies.push_back({place, from, size, num_read});
}
static void cp_async_wait_all() {
  vector<Copy>& copies = emulated::fibres[emulated::current].copies;
  for (const Copy& c : copies) {
    memset(c.to, 0, c.size);
    memcpy(c.to, c.from, c.num_read);
  }
  copies.clear();
}

// What tensor cores do with an addend beside a larger one, and with a sum: they cut it off (Fasi et al., 2021). Here an
// addend keeps one bit below the last of the largest; of TF32 operands the lowest 13 bits are not read.
static double cut_off(double v, int bits) { return ldexp(trunc(ldexp(v, bits)), -bits); }

// D = A * B + D for A of 16 x 8, B of 8 x 8; fragments as in the PTX ISA, "Matrix Fragments for mma.m16n8k8".
static void mma_sync_aligned_m16n8k8_row_col_f32_tf32_tf32_f32(float& d0, float& d1, float& d2, float& d3, uint32_t a0,
                                                               uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                                               uint32_t b1, float c0, float c1, float c2, float c3) {
  const int self = emulated::current, first = self / 32 * 32, group = self % 32 / 4, in_group = self % 4;
  Fibre& own = emulated::fibres[self];
  const int turn = own.num_products++ % 2;  // one that is ahead cannot be two ahead
  const uint32_t a[4] = {a0, a1, a2, a3}, b[2] = {b0, b1};
  memcpy(own.left[turn], a, sizeof a);
  memcpy(own.right[turn], b, sizeof b);
  emulated::wait(first, first + 32, &Fibre::warp_phase);
  auto left = [&](int row, int k) {  // a0: (g, t), a1: (g + 8, t), a2: (g, t + 4), a3: (g + 8, t + 4)
    const Fibre& f = emulated::fibres[first + row % 8 * 4 + k % 4];
    return (double)__uint_as_float(f.left[turn][row / 8 + k / 4 * 2] & 0xffffe000);
  };
  auto right = [&](int k, int col) {  // b0: (t, g), b1: (t + 4, g)
    const Fibre& f = emulated::fibres[first + col * 4 + k % 4];
    return (double)__uint_as_float(f.right[turn][k / 4] & 0xffffe000);
  };
  const float c[4] = {c0, c1, c2, c3};
  float* const d[4] = {&d0, &d1, &d2, &d3};
  for (int r = 0; r < 4; r++) {  // c0: (g, 2t), c1: (g, 2t + 1), c2: (g + 8, 2t), c3: (g + 8, 2t + 1)
    const int row = group + r / 2 * 8, col = in_group * 2 + r % 2;
    double addends[9] = {c[r]}, top = fabs(c[r]), sum = 0;
    for (int k = 0; k < 8; k++) {
      addends[k + 1] = left(row, k) * right(k, col);
      top = max(top, fabs(addends[k + 1]));
    }
    if (!isfinite(top)) {
      for (double v : addends) sum += v;
      *d[r] = sum;
      continue;
    }
    const int bits = top > 0 ? 24 - ilogb(top) : 0;
    for (double v : addends) sum += cut_off(v, bits);
    *d[r] = sum == 0 ? 0 : cut_off(sum, 23 - ilogb(sum));
  }
}
}  // namespace ptx
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
