"""A candidate's kernels are found by name however they are declared; a library's kernel of that name is not its own."""

import pytest

from kevin.judge.own_kernels import is_own, own_kernel_names


@pytest.mark.parametrize(
    "source",
    [
        "__global__ void relu(const float* x) {}",
        "__global__ void __launch_bounds__(256) relu(const float* x) {}",
        "__global__ __launch_bounds__(256, (2)) void relu(const float* x) {}",
        "template <typename T, int N>\n__global__ void\nrelu (const T* x) {}",
        'extern "C" __global__ void relu(float* x);',
        "__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(THREADS(4)) relu(float* x) {}",
        "static __global__ __attribute__((noinline)) void relu(float* x) {}",
        "KERNEL relu(float* x) {}\nvoid f() { relu<<<1, 2>>>(x); }",
        "KERNEL relu(float* x) {}\nvoid f() { relu<float, Pair<int, 4>><<<dim3(1), 2, 0, stream>>>(x); }",
        'source = """\n__global__ void __launch_bounds__(256) relu(float* x) {}\n"""\nload_inline(name="a")',
    ],
)
def test_names(source: str) -> None:
    assert own_kernel_names(source) == {"relu"}


def test_comments_name_no_kernel() -> None:
    assert own_kernel_names("// __global__ void fast(float* x)\n__global__ void slow(float* x) {}") == {"slow"}


@pytest.mark.parametrize(
    ("profiled", "own"),
    [
        ("relu(float const*, float*)", True),
        ("void relu<float, 4>(float const*)", True),
        ("void (anonymous namespace)::relu<float>(float*)", True),
        ("void mine::relu<at::Half>(at::Half*)", True),
        ("relu", True),
        ("void at::native::relu<4, at::native::F>(int)", False),
        ("void cub::relu(int)", False),
        ("void other<relu>(relu)", False),
        ("ampere_sgemm_128x64_nn", False),
        ("", False),
    ],
)
def test_whose_it_is(profiled: str, own: bool) -> None:
    assert is_own(profiled, {"relu"}) is own
