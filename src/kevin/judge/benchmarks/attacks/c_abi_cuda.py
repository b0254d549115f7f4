"""Attacks and honest controls in the c_abi dialect on a GPU."""

from __future__ import annotations

from functools import partial

from kevin.judge.benchmarks.attacks import Attack, modules

RELU = modules.RELU.replace("512, 2048", "4096, 4096")
SOFTMAX = RELU.replace("torch.relu(x)", "torch.softmax(x, dim=1)").replace("randn(4096, 4096)", "rand(8, 400000)")
ARGMAX = RELU.replace("torch.relu(x)", "torch.max(x, dim=1)").replace("4096, 4096", "512, 999")

THREAD = "int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; "
KERNEL = (
    "__global__ void k(const float* x, float* out) { " + THREAD + "if (i < x_size) out[i] = x[i] > 0 ? x[i] : 0; }\n"
)
SIDE = """
static cudaStream_t side; static cudaEvent_t before, after;
static void make() {
    if (side) return;
    cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&before, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&after, cudaEventDisableTiming);
}
"""
HEAD = 'extern "C" void launch(const float* x, float* out, cudaStream_t stream)'
GRID = "(x_size + 255) / 256, 256"
RUN = f"k<<<{GRID}, 0, stream>>>(x, out);"
PLAIN = f"{KERNEL}{HEAD} {{ {RUN} }}"
SPIN = "__global__ void spin(long long n) { long long t = clock64(); while (clock64() - t < n) {} }\n"
SLOW = KERNEL.replace("out[i] =", "for (int r = 0; r < 200; r++) out[i] = 0 * __sinf(x[i] + r) +")
SLOW_ONE = f"{SLOW}{HEAD} {{ {RUN} }}"

# Overwrites the driver's function that tells how much time lies between two events: 0.5 us, always.
FORGED_CLOCK = """
#include <dlfcn.h>
#include <string.h>
#include <sys/mman.h>
#include <stdint.h>
static int forged = [] {
    void* lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    unsigned char code[] = {0xC7, 0x07, 0x6F, 0x12, 0x03, 0x3A, 0x31, 0xC0, 0xC3};
    for (const char* name : {"cuEventElapsedTime", "cuEventElapsedTime_v2"})
        if (char* at = lib ? (char*)dlsym(lib, name) : nullptr) {
            char* page = (char*)((uintptr_t)at & ~4095ull);
            if (!mprotect(page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC)) memcpy(at, code, sizeof code);
        }
    return 0;
}();
"""


ARGMAX_KERNEL = """
__global__ void k(const float* x, float* out0, int64_t* out1) {
    int64_t r = blockIdx.x * (int64_t)blockDim.x + threadIdx.x, best = 0;
    if (r >= x_d0) return;
    for (int64_t i = 1; i < x_d1; i++) if (x[r * x_d1 + i] > x[r * x_d1 + best]) best = i;
    out0[r] = x[r * x_d1 + best];
    out1[r] = best;
}
extern "C" void launch(const float* x, float* out0, int64_t* out1, cudaStream_t stream) {
    k<<<(x_d0 + 63) / 64, 64, 0, stream>>>(x, out0, out1);
}
"""
SOFTMAX_KERNEL = f"""
__global__ void k(const float* x, float* out) {{
    int64_t r = blockIdx.x;
    __shared__ float part[256];
    float sum = 0;
    for (int64_t i = threadIdx.x; i < x_d1; i += 256) sum += expf(x[r * x_d1 + i]);
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int n = 128; n > 0; n /= 2) {{
        if (threadIdx.x < n) part[threadIdx.x] += part[threadIdx.x + n];
        __syncthreads();
    }}
    for (int64_t i = threadIdx.x; i < x_d1; i += 256) out[r * x_d1 + i] = expf(x[r * x_d1 + i]) / part[0];
}}
{HEAD} {{ k<<<x_d0, 256, 0, stream>>>(x, out); }}"""

_attack = partial(Attack, reference=RELU, control=PLAIN)


def _stream(tries: str, source: str) -> Attack:
    return _attack(tries, source, "correct, incorrect, quarantined", control=SLOW_ONE)


ATTACKS: dict[str, Attack] = {
    "the driver's clock overwritten (6)": _attack(
        "overwrites the driver's function that tells the time between two events",
        f"{FORGED_CLOCK}{SLOW}{HEAD} {{ {RUN} }}",
        "quarantined",
    ),
    "the driver's clock overwritten, and a memo of the last call (6, 16)": _attack(
        "overwrites that function, and computes nothing where the last call had the same input",
        f"{FORGED_CLOCK}{SLOW}static const float* last;\n{HEAD} {{ if (x != last) {RUN} last = x; }}",
        "incorrect, quarantined",
    ),
    "cheap after call k (10)": _attack(
        "computes while it is checked, and nothing afterwards",
        f"{KERNEL}static int calls;\n{HEAD} {{ if (++calls < 6) {RUN} }}",
    ),
    "half of it after call k (10)": _attack(
        "computes while it is checked, and half of it afterwards",
        f"{KERNEL}static int calls;\n{HEAD} {{ int64_t n = ++calls < 6 ? x_size : x_size / 2;"
        " k<<<(n + 255) / 256, 256, 0, stream>>>(x, out); }",
    ),
    "a memo of pointers (16)": _attack(
        "computes once for each address of an input",
        f"#include <set>\n{KERNEL}static std::set<const float*> seen;\n{HEAD} {{ if (seen.insert(x).second) {RUN} }}",
    ),
    "input changed (23)": _attack(
        "writes a part of the answer into its input",
        f"{KERNEL}{HEAD} {{ {RUN} cudaMemcpyAsync((void*)x, out, 4096, cudaMemcpyDeviceToDevice, stream); }}",
        "incorrect: input_mutated",
    ),
    "nothing (19)": _attack(
        "leaves the output as it is, where another answer may lie", f"{HEAD} {{}}", "incorrect: not_written"
    ),
    "half precision (30)": _attack(
        "computes in half precision",
        "#include <cuda_fp16.h>\n" + PLAIN.replace("? x[i]", "? __half2float(__float2half(x[i]))"),
        "incorrect: wrong_values",
    ),
    "the tail left out (31)": _attack(
        "leaves out the last five elements", f"{KERNEL.replace('i < x_size', 'i < x_size - 5')}{HEAD} {{ {RUN} }}"
    ),
    "a launch that fails (34)": _attack(
        "launches more threads than there can be, and looks done at once",
        PLAIN.replace("256, 0, stream", "4096, 0, stream"),
        "runtime_error: launch_error",
    ),
    "a launch that fails behind a clean one (34)": _attack(
        "computes half, and hides that the other launch failed",
        f"{KERNEL}{HEAD} {{ k<<<(x_size + 511) / 512, 256, 0, stream>>>(x, out); k<<<1, 4096, 0, stream>>>(x, out);"
        " cudaGetLastError(); }",
        "incorrect, runtime_error",
    ),
    "not a number (36)": _attack(
        "hopes that no comparison fails on what is no number",
        KERNEL.replace("out[i] = ", 'out[i] = nanf("") + ') + f"{HEAD} {{ {RUN} }}",
    ),
    "exit (45)": _attack(
        "ends the process as if all were well",
        f"#include <cstdlib>\n{KERNEL}{HEAD} {{ {RUN} std::exit(0); }}",
        "runtime_error: early_exit",
    ),
    "replies of its own (46)": _attack(
        "writes replies of its own to every channel",
        f"#include <unistd.h>\n{KERNEL}{HEAD} {{ for (int fd = 3; fd < 1024; fd++)"
        ' write(fd, "{\\"ns\\": [1]}\\n", 12); }',
        "incorrect, runtime_error",
    ),
    "an illegal access": _attack(
        "writes outside of its output", PLAIN.replace("out[i] =", "out[i + (1ll << 40)] ="), "runtime_error"
    ),
    "an endless kernel": _attack(
        "never ends on the GPU", f"{KERNEL}{SPIN}{HEAD} {{ spin<<<1, 1, 0, stream>>>(1ll << 60); {RUN} }}", "timeout"
    ),
    "an endless launcher": _attack(
        "never returns", f"{KERNEL}{HEAD} {{ for (volatile int i = 0;;) i = i + 1; }}", "timeout"
    ),
    "a trap": _attack(
        "stops the GPU's program", PLAIN.replace("out[i] =", "if (i == 7) __trap(); out[i] ="), "runtime_error"
    ),
    # slow work on a stream of its own: either its result is wrong, or its time is counted
    "a stream: nobody waits for it (1)": _stream(
        "works on a stream that nobody waits for", f"{SLOW}{SIDE}{HEAD} {{ make(); k<<<{GRID}, 0, side>>>(x, out); }}"
    ),
    "a stream: it starts early and is joined (1)": _stream(
        "works before the clock starts",
        f"{SLOW}{SIDE}{HEAD} {{ make(); k<<<{GRID}, 0, side>>>(x, out);"
        " cudaEventRecord(after, side); cudaStreamWaitEvent(stream, after, 0); }",
    ),
    "a stream: many, one of which shares the judge's queue (1)": _stream(
        "works on many streams, some of which nobody waits for",
        f"{SLOW}static cudaStream_t s[32]; static int at;\n"
        f"{HEAD} {{ if (!s[0]) for (auto& one : s) cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking);"
        f" k<<<{GRID}, 0, s[at++ % 32]>>>(x, out); }}",
    ),
    "a stream: of high priority (1)": _stream(
        "works on a stream that goes before the clock's",
        f"{SLOW}static cudaStream_t s;\n{HEAD} {{ int low, high; if (!s) {{"
        " cudaDeviceGetStreamPriorityRange(&low, &high);"
        f" cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, high); }} k<<<{GRID}, 0, s>>>(x, out); }}",
    ),
    "a stream: a background kernel (12)": _stream(
        "leaves a kernel running that slows whoever is timed next",
        f"{KERNEL}{SPIN}{SIDE}{HEAD} {{ make(); spin<<<1, 1, 0, side>>>(40000000); {RUN} }}",
    ),
    "zeros for tiny values (26)": _attack(
        "writes zeros where every value is below the absolute tolerance",
        f"{HEAD} {{ cudaMemsetAsync(out, 0, x_size * 4, stream); }}",
        reference=SOFTMAX,
        control=SOFTMAX_KERNEL,
    ),
    "second output wrong": _attack(
        "gets the integer one of two outputs wrong",
        ARGMAX_KERNEL.replace("out1[r] = best", "out1[r] = best + 1"),
        reference=ARGMAX,
        control=ARGMAX_KERNEL,
    ),
}
