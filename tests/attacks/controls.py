"""Honest kernels that must pass, beside those that stand next to an attack in `kevin.judge.benchmarks.attacks`."""

from __future__ import annotations

from kevin.judge.benchmarks.attacks.c_abi_cpu import BODY, CORRECT, EACH, HEAD, launch
from kevin.judge.benchmarks.attacks.c_abi_cuda import GRID, KERNEL, RUN, SIDE, SLOW_ONE, THREAD
from kevin.judge.benchmarks.attacks.c_abi_cuda import HEAD as CUDA
from kevin.judge.benchmarks.attacks.c_abi_cuda import PLAIN as PLAIN_CUDA
from kevin.judge.benchmarks.attacks.modules import PLAIN as PLAIN_MODULE
from kevin.judge.benchmarks.attacks.modules import forward
from kevin.judge.benchmarks.attacks.modules_cuda import GRAPH, ON_STREAM

C_ABI_CPU = {
    "plain": CORRECT,
    "slow_but_right": launch(f"for (int r = 0; r < 20; r++) {{ {BODY.replace('out[i] =', 'out[i] = 0.f * r +')} }}"),
    "word_try_and_pass_in_comment": "// try to pass; except catch\n" + CORRECT,
    "variable_named_block_lock": launch(f"int block_lock = 1; (void)block_lock; {BODY}"),
    "template": launch(
        f"{EACH} out[i] = act<float>(x[i]);",
        "template <typename T> static T act(T v) { return v > T(0) ? v : T(0); }\n",
    ),
    "openmp": HEAD + "{\n#pragma omp parallel for\n" + BODY + " }",
    "own_scratch_in_place": launch(
        f"std::vector<float> t(x, x + x_size); for (auto& v : t) v = v > 0 ? v : 0; {EACH} out[i] = t[i];",
        "#include <vector>\n",
    ),
}

VECTORS = """
__device__ float4 act(float4 v) {
    v.x = v.x > 0 ? v.x : 0; v.y = v.y > 0 ? v.y : 0; v.z = v.z > 0 ? v.z : 0; v.w = v.w > 0 ? v.w : 0; return v;
}
__global__ void k4(const float4* x, float4* out, int64_t n) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < n) out[i] = act(x[i]);
}
"""
HALF = "k4<<<(h + 255) / 256, 256, 0, {}>>>((const float4*)x + {}, (float4*)out + {}, h);"

C_ABI_CUDA = {
    "plain": PLAIN_CUDA,
    "slow": SLOW_ONE,
    "vectors": f"{VECTORS}{CUDA} {{ int64_t h = x_size / 4; {HALF.format('stream', 0, 0)} }}",
    "two streams, joined": f"{VECTORS}{SIDE}{CUDA} {{ make(); int64_t h = x_size / 8; cudaEventRecord(before, stream);"
    f" cudaStreamWaitEvent(side, before, 0); {HALF.format('side', 0, 0)} {HALF.format('stream', 'h', 'h')}"
    " cudaEventRecord(after, side); cudaStreamWaitEvent(stream, after, 0); }",
    "a graph that reads live inputs": "#include <map>\n"
    f"{KERNEL}static std::map<const float*, cudaGraphExec_t> graphs;\n"
    f"{CUDA} {{ auto& g = graphs[x]; if (!g) {{ cudaGraph_t made;"
    f" cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal); {RUN} cudaStreamEndCapture(stream, &made);"
    " cudaGraphInstantiate(&g, made, 0); } cudaGraphLaunch(g, stream); }",
    "scratch of its own": f"__global__ void k(float* t) {{ {THREAD} if (i < x_size) t[i] = t[i] > 0 ? t[i] : 0; }}\n"
    f"{CUDA} {{ float* t; cudaMallocAsync(&t, x_size * 4, stream);"
    " cudaMemcpyAsync(t, x, x_size * 4, cudaMemcpyDeviceToDevice, stream);"
    f" k<<<{GRID}, 0, stream>>>(t); cudaMemcpyAsync(out, t, x_size * 4, cudaMemcpyDeviceToDevice, stream);"
    " cudaFreeAsync(t, stream); }",
    "a template": f"template <typename T> {KERNEL.replace('float', 'T').replace('0', 'T(0)')}"
    f"{CUDA} {{ k<float><<<{GRID}, 0, stream>>>(x, out); }}",
    "words": f"// try to pass; a block_lock\n{KERNEL}{CUDA} {{ int block_lock = 1; (void)block_lock; {RUN} }}",
}


MODULES = {
    "plain": PLAIN_MODULE,
    "slow_but_right": forward("for _ in range(5): y = torch.relu(x)", "return y"),
    "in_place_on_own_buffer": forward("y = x.clone()", "y.relu_()", "return y"),
    "tuple_of_one": forward("return (torch.relu(x),)"),
    "parameters_under_other_names": forward("return torch.maximum(x, self.zero)").replace(
        "    def forward",
        "    def __init__(self):\n        super().__init__()\n        self.zero = nn.Parameter("
        "torch.zeros(1))\n    def forward",
    ),
}
JOINED = """        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = torch.relu(x)
        torch.cuda.current_stream().wait_stream(side)
        return y
"""
MODULES_CUDA = MODULES | {"a graph that reads live inputs": GRAPH, "a stream, joined": ON_STREAM + JOINED}
