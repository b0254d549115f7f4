"""How a cell ends, in every isolation that works here: its signal is told, and nothing of it is left."""

from __future__ import annotations

import ctypes.util
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from process_fixtures import is_gone, until

from kevin.core.errors import SandboxError
from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Kernel, Outcome, TaskSpec, TensorSpec
from kevin.judge.compile import native
from kevin.judge.sandbox.cell import CandidateFailed, Cell
from kevin.judge.sandbox.isolation import Isolation, detect_isolation
from kevin.judge.sandbox.slots import anonymous_buffer

NO_TENSORS = {"shared_bytes": 4096, "cache_bytes": 1 << 20, "memory_bytes": 1 << 30, "num_threads": 1, "slots": [[]]}
NO_TENSORS |= {"guarded": [[]], "num_outputs": 0}


@pytest.fixture(params=list(Isolation))
def isolation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Isolation]:
    monkeypatch.setenv("KEVIN_ISOLATION", request.param.value)
    detect_isolation.cache_clear()
    try:
        yield detect_isolation()
    except SandboxError as e:
        pytest.skip(str(e))
    finally:
        detect_isolation.cache_clear()


def _calling(cell: Cell, function: str, timeout_s: float = 5.0) -> None:
    """Have a cell call a function of the C library as if it were its candidate."""
    memory = anonymous_buffer(4096)
    library = ctypes.util.find_library("c")
    cell.prepare(NO_TENSORS | {"library": library, "launcher": function}, memory.fd)
    assert "error" not in cell.load(10.0)
    memory.close()
    cell.call([], [0], timeout_s)


def test_an_abort_is_told_as_one(isolation: Isolation) -> None:
    with Cell("native.py", isolation=isolation) as cell, pytest.raises(CandidateFailed) as failed:
        _calling(cell, "abort")
    assert (failed.value.outcome, failed.value.reason) == (Outcome.RUNTIME_ERROR, "aborted")


def test_what_is_killed_is_reaped_at_once(isolation: Isolation) -> None:
    before = {p.pid for p in psutil.process_iter()}
    with Cell("native.py", isolation=isolation) as cell:
        with pytest.raises(CandidateFailed, match="time limit"):
            _calling(cell, "pause", 0.3)
        pid = cell._process.pid
        assert pid is not None
        made = [p for p in (psutil.Process(pid), *psutil.Process(pid).parents()) if p.pid not in before]
    assert made[0].pid == pid
    assert not [p for p in made if psutil.pid_exists(p.pid)]


def test_one_that_only_starts_is_gone_when_killed(isolation: Isolation) -> None:
    """At any moment of its start; what was not reaped at once is left to the host's first process, and ends too."""
    mine = psutil.Process()
    others = set(mine.children(recursive=True))
    for i in range(20):
        cell = Cell("native.py", isolation=isolation)
        time.sleep(0.03 * i / 20)
        made = set(mine.children(recursive=True)) - others
        cell.kill()
        assert not [p for p in made if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    assert not [p for p in set(mine.children()) - others if p.status() == psutil.STATUS_ZOMBIE]


HOST = f"""
import ctypes.util, os
from kevin.judge.sandbox.cell import Cell
from kevin.judge.sandbox.isolation import detect_isolation

memory = os.memfd_create("shared")
os.ftruncate(memory, 4096)
cell = Cell("native.py", isolation=detect_isolation())
cell.prepare({NO_TENSORS} | {{"library": ctypes.util.find_library("c"), "launcher": "pause"}}, memory)
assert "error" not in cell.load(10.0)
print(cell._process.pid, flush=True)
cell.call([], [0], 60.0)
"""


def test_a_candidate_does_not_outlive_its_judge(isolation: Isolation) -> None:
    """Not even one that is killed at once with no chance to tidy up; Apptainer's end is for the supervisor."""
    if isolation is Isolation.APPTAINER:
        pytest.skip("its programs stay until the command's supervisor ends")
    host = subprocess.Popen([sys.executable, "-c", HOST], stdout=subprocess.PIPE, text=True)
    assert host.stdout is not None
    pid = int(host.stdout.readline())
    time.sleep(0.5)  # for the call to begin
    assert psutil.pid_exists(pid)
    host.kill()
    host.wait()
    until(lambda: is_gone(pid))


COMPILER = """#!/bin/sh
{{ set -C; : > "$TMPDIR/same_name"; }} || {{ echo "kernel.cpp:1:1: error: somebody else's file" >&2; exit 1; }}
sleep 0.3
exec {gxx} "$@"
"""
"""Names its temporary file as nvcc does, by what is the same in every sandbox."""
SPEC = TaskSpec(
    inputs=(TensorSpec(name="x", shape=(4,), dtype="float32"),),
    parameters=(),
    outputs=(TensorSpec(name="out", shape=(4,), dtype="float32"),),
)


def test_compilers_at_once_do_not_meet_in_a_folder(
    isolation: Isolation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isolation in (Isolation.APPTAINER, Isolation.BUBBLEWRAP):
        pytest.skip("each of its sandboxes has a /tmp of its own, and no compiler from there")
    compiler = tmp_path / "g++"
    compiler.write_text(COMPILER.format(gxx="/usr/bin/g++"))
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    sources = [f'extern "C" void launch(const float* x, float* out) {{ out[0] = {i} * x[0]; }}' for i in range(3)]

    def built(source: str) -> native.Build:
        kernel = Kernel(dialect="c_abi", language="cpp", source=source)
        return native.build_native(kernel, SPEC, JudgeProtocol(), tmp_path / "cache", isolation)

    with ThreadPoolExecutor(len(sources)) as pool:
        assert [b.message for b in pool.map(built, sources)] == [""] * len(sources)


def test_a_build_is_for_the_processor_that_it_was_made_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(
        dialect="c_abi", language="cpp", source='extern "C" void launch(const float* x, float* out) { out[0] = x[0]; }'
    )
    native.build_native(kernel, SPEC, JudgeProtocol(), tmp_path)
    assert native.build_native(kernel, SPEC, JudgeProtocol(), tmp_path).cached
    monkeypatch.setattr(native, "processor", lambda: "another one")
    assert not native.build_native(kernel, SPEC, JudgeProtocol(), tmp_path).cached


@pytest.mark.parametrize("script", ["native.py", pytest.param("module.py", marks=pytest.mark.slow)])
def test_a_sandbox_that_does_not_come_up_is_not_the_candidates_fault(script: str) -> None:
    with (
        Cell(script, isolation=detect_isolation()) as cell,
        pytest.raises(SandboxError, match=r"(?s)did not come up \(early_exit\): .*KeyError"),
    ):
        cell.prepare({"num_threads": 1}, timeout_s=60)
