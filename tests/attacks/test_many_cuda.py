"""A thousand kernels, hostile and honest, through the pool on a GPU: a verdict for each and nothing left behind."""

from __future__ import annotations

import gc
import os
import random
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from kevin.core.config import JudgePoolConfig
from kevin.core.types import Kernel, Outcome, Task, Verdict
from kevin.judge.benchmarks.attack_table import attack_protocol
from kevin.judge.benchmarks.attacks.c_abi_cuda import ATTACKS, GRID, HEAD, KERNEL, RELU, RUN
from kevin.judge.device.judging import Judging
from kevin.judge.pool.judge_pool import JudgePool
from kevin.tasks.format import inspect_task

from .controls import C_ABI_CUDA as CONTROLS

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

NUM_KERNELS = int(os.environ.get("KEVIN_TEST_KERNELS", "1000"))
NUM_HANGING = 12
CORRECT, ERROR = (Outcome.CORRECT,), (Outcome.RUNTIME_ERROR,)
KINDS: dict[str, tuple[str, tuple[Outcome, ...]]] = {
    "honest": (CONTROLS["plain"], CORRECT),
    "vectors": (CONTROLS["vectors"], CORRECT),
    "wrong": (ATTACKS["the tail left out (31)"].source, (Outcome.INCORRECT,)),
    "illegal access": (ATTACKS["an illegal access"].source, ERROR),
    "segmentation fault": (f"{KERNEL}{HEAD} {{ {RUN} *(volatile int*)8 = 1; }}", ERROR),
    "abort": (f"#include <cstdlib>\n{KERNEL}{HEAD} {{ {RUN} std::abort(); }}", ERROR),
    "exit": (ATTACKS["exit (45)"].source, ERROR),
    "leaked device memory": (f"{KERNEL}{HEAD} {{ void* p; cudaMalloc(&p, 8 << 20); {RUN} }}", CORRECT),
    "leaked host memory": (f"#include <cstdlib>\n{KERNEL}{HEAD} {{ (void)malloc(64 << 20); {RUN} }}", CORRECT),
    "does not compile": (f"{KERNEL}{HEAD} {{ k<<<{GRID}>>>(y, out); }}", (Outcome.COMPILE_ERROR,)),
}
HANGING = (ATTACKS["an endless kernel"].source, (Outcome.TIMEOUT,))


def used_bytes() -> int:
    """On the GPU by all processes together."""
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", f"--id={gpu}"]
    return int(subprocess.run(query, capture_output=True, text=True, check=True).stdout) << 20


def test_a_thousand_kernels(gpu_device: Judging, tmp_path: Path) -> None:
    task = Task(id="test", level=1, name="test", source=RELU, origin="user", spec=inspect_task(RELU, "test"))
    kinds = list(KINDS.values())
    names = {source: name for name, (source, _) in KINDS.items()}
    chosen = [HANGING if i < NUM_HANGING else kinds[i % len(kinds)] for i in range(NUM_KERNELS)]
    random.Random(0).shuffle(chosen)
    pairs = [
        (task, Kernel(dialect="c_abi", language="cuda", source=f"// variant {i}\n{source}"))
        for i, (source, _) in enumerate(chosen)
    ]
    gc.collect()
    before = used_bytes()
    own = {p.pid for p in psutil.process_iter()}
    with JudgePool(attack_protocol("cuda"), tmp_path, JudgePoolConfig()) as pool:
        verdicts = pool.judge(pairs)
    wrong = [
        (
            names.get(source, "endless"),
            getattr(verdict, "reason", None),
            getattr(verdict, "message", str(verdict))[:300],
        )
        for (source, expected), verdict in zip(chosen, verdicts, strict=True)
        if not isinstance(verdict, Verdict) or verdict.outcome not in expected
    ]
    deadline = time.monotonic() + 20
    while (left := _left(own)) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert not left
    assert abs(used_bytes() - before) < 64 << 20
    assert not wrong, (len(wrong), wrong[:5])


def _left(own: set[int]) -> list[str]:
    """Command lines of processes of this test that still run; on other cores than its own there may be others."""
    found = []
    cores = os.sched_getaffinity(0)
    for process in psutil.process_iter(["pid", "cmdline", "status", "cpu_affinity"]):
        info = process.info
        line = " ".join(info["cmdline"] or [])
        is_own = info["pid"] not in own and "kevin" in line and cores >= set(info["cpu_affinity"] or [])
        if is_own and info["status"] != psutil.STATUS_ZOMBIE:
            found.append(line)
    return found
