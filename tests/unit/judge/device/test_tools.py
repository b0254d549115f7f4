"""What NVIDIA's tools say of a kernel is read off their own words; its own kernels are found by name."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from kevin.core.errors import DeviceError
from kevin.core.protocol import JudgeProtocol
from kevin.judge.device.tools import (
    OwnKernels,
    find_tool,
    first_violation,
    profiler_command,
    read_profile,
    sanitizer_command,
    tool_paths,
)

_RATIO = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
_STALLS = ("barrier", "drain", "long_scoreboard", "math_pipe_throttle", "not_selected", "selected", "wait")
_ACTIVE = "sm__warps_active.avg.pct_of_peak_sustained_active"
_TABLE = [
    ["ID", "Kernel Name", "gpu__time_duration.sum", _ACTIVE, *(_RATIO.format(s) for s in _STALLS)],
    ["", "", "ns", "%", *["inst"] * len(_STALLS)],
    ["0", "normal_kernel", "157,248", "50.51", "0.69", "0.00", "0.00", "1.68", "3.62", "1.00", "1.86"],
    ["1", "relu(float, int)", "125,664", "85.57", "0", "12.72", "107.56", "0.04", "0.14", "1.00", "2.81"],
]
HEAD = "==PROF== Connected to process 17952\n==WARNING== Note: Running with unmodified GPU clocks.\n"
TEXT = HEAD + "".join(",".join(f'"{cell}"' for cell in row) + "\n" for row in _TABLE)


def test_kernels_count_by_their_time() -> None:
    found = read_profile(TEXT)
    first, second = 157248, 125664
    assert found["achieved_occupancy_share"] == pytest.approx(
        (first * 0.5051 + second * 0.8557) / (first + second), abs=1e-12
    )
    assert found["stalls"] == "global memory 81%, stores 10%"


def test_what_issues_waits_for_nothing_and_little_is_not_told() -> None:
    rows = TEXT.splitlines(keepends=True)
    only_first = "".join(rows[:-1])
    assert read_profile(only_first)["stalls"] == "their turn 46%, the instruction before 24%, the arithmetic units 21%"


@pytest.mark.parametrize("text", ["", HEAD, TEXT.replace("157,248", "").replace("125,664", "n/a")])
def test_a_table_without_kernels_says_nothing(text: str) -> None:
    assert read_profile(text) == {}


def test_only_own_kernels_are_profiled(tmp_path: Path) -> None:
    command = profiler_command("/opt/ncu/ncu", tmp_path / "log", ["relu", "add"])
    assert command[command.index("--kernel-name") + 1] == "regex:^(add|relu)$"
    assert command[command.index("--log-file") + 1] == str(tmp_path / "log")


def test_a_profiler_outside_the_system_is_shown_to_the_sandbox(tmp_path: Path) -> None:
    program = tmp_path / "bin/ncu"
    program.parent.mkdir()
    program.touch()
    assert str(tmp_path / "bin") in tool_paths(str(program))


def test_a_profiler_that_is_missing_or_useless_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kevin.judge.device.tools.shutil.which", lambda name, path=None: None)
    with pytest.raises(DeviceError, match=r"judge\.profiler is ncu, .* install it"):
        find_tool("ncu")
    with pytest.raises(ValidationError, match="profiler ncu needs device cuda"):
        JudgeProtocol(device="cpu", profiler="ncu")


HEAD = "========= COMPUTE-SANITIZER\n"
FIRST = """\
========= Invalid __global__ read of size 4 bytes
=========     at normal_kernel(const float *, float *, int)+0xd0
=========     by thread (96,0,0) in block (31,0,0)
=========     Access at 0x7f3d54a00f80 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f3d54a00000 of size 3,968 bytes
========= \n"""
SECOND = "========= Invalid __shared__ write of size 16 bytes\n=========     at other(float *)+0x40\n"


def test_the_first_access_out_of_bounds_is_told_with_its_place() -> None:
    said = first_violation(HEAD + FIRST + SECOND + "========= ERROR SUMMARY: 2 errors\n")
    assert said is not None
    assert said.splitlines() == [
        "Invalid __global__ read of size 4 bytes",
        "at normal_kernel(const float *, float *, int)+0xd0",
        "by thread (96,0,0) in block (31,0,0)",
        "Access at 0x7f3d54a00f80 is out of bounds",
    ]
    assert first_violation(HEAD + SECOND) == "Invalid __shared__ write of size 16 bytes\nat other(float *)+0x40"


def test_a_call_that_the_driver_refuses_counts_too() -> None:
    text = "Program hit cudaErrorIllegalAddress (error 700) due to an illegal memory access"
    said = first_violation(f"{HEAD}========= {text}\n=========\n")
    assert said == text


def test_a_clean_report_tells_of_nothing() -> None:
    assert first_violation(HEAD + "========= ERROR SUMMARY: 0 errors\n") is None
    assert first_violation("") is None
    printed = "the kernel prints: Invalid __global__ read of size 4 bytes\n"
    assert first_violation(HEAD + printed) is None, "what does not come from the tool"


def test_the_tool_starts_once_with_pytorchs_cache_off() -> None:
    command = sanitizer_command("/opt/compute-sanitizer", Path("/tmp/report.txt"))
    assert command[:3] == ["env", "PYTORCH_NO_CUDA_MEMORY_CACHING=1", "/opt/compute-sanitizer"]
    assert command.count("/opt/compute-sanitizer") == 1
    assert command[command.index("--log-file") + 1] == "/tmp/report.txt"


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
        "// __global__ void fast(float* x)\n__global__ void relu(float* x) {}",
    ],
)
def test_its_kernels_are_found_however_they_are_declared_and_not_in_comments(source: str) -> None:
    assert OwnKernels(source).names == {"relu"}


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
