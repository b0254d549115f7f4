"""A candidate's kernels are found by name however they are declared; a library's kernel of that name is not its own."""

import pytest

from kevin.judge.device.own_kernels import OwnKernels

FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >(int)"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >()"
PRODUCT = "sm90_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize128x128x32_warpgroupsize1x1x1_execute_kernel__5x_cublas"


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
    assert OwnKernels(source).names == {"relu"}


def test_comments_name_no_kernel() -> None:
    assert OwnKernels("// __global__ void fast(float* x)\n__global__ void slow(float* x) {}").names == {"slow"}


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
        (PRODUCT, False),
        ("", False),
    ],
)
def test_whose_it_is(profiled: str, own: bool) -> None:
    assert (profiled in OwnKernels("__global__ void relu(float* x) {}")) is own


def test_header_libraries_are_own_where_they_are_included() -> None:
    scan = "void cub::CUB_200_NS::DeviceScanKernel<cub::Policy, float*>(float*)"
    assert scan in OwnKernels("#include <cub/cub.cuh>\nvoid f() { cub::DeviceScan::InclusiveSum(a, b, c, d, e); }")
    assert scan not in OwnKernels("__global__ void relu(float* x) {}")


def test_shares_of_the_time() -> None:
    kernels = OwnKernels("__global__ void relu(float* x) {}")
    listed = [("relu(float*)", 30.0), (FILL, 30.0), ("Memset (Device)", 10.0), (ADD, 25.0), (PRODUCT, 15.0)]
    shares = kernels.shares(listed)
    assert (shares.own, shares.foreign) == pytest.approx((0.3, 0.4))
    assert shares.largest_foreign == ADD
    assert kernels.shares([]) == (0.0, 0.0, "")
