"""What compute-sanitizer's report says of a kernel."""

from __future__ import annotations

from pathlib import Path

from kevin.judge.device.tools import first_violation, sanitizer_command

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
