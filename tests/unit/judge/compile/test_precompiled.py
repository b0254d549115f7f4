"""Torch's headers are compiled once, beside the builds, which say the same with and without them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from torch.utils import cpp_extension

from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Kernel, Outcome, Task
from kevin.judge.compile import inline
from kevin.judge.sandbox.cell import CandidateFailed
from kevin.judge.sandbox.isolation import detect_isolation

TASK = Task(id="test", level=1, name="test", source="", origin="user")
MODULE = """
import torch
from torch.utils.cpp_extension import load_inline
own = load_inline("own", {source!r}, functions=["twice"]{more})
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return own.twice(x)
"""
TWICE = "torch::Tensor twice(torch::Tensor x) { return 2 * x; }"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    inline._start.cache_clear()
    return tmp_path / "cache" / "kevin"


def _build(source: str, folder: Path, more: str = "") -> tuple[Outcome | None, str]:
    kernel = Kernel(dialect="load_inline", language="cpp", source=MODULE.format(source=source, more=more))
    build = inline.build_inline(TASK, kernel, JudgeProtocol(rules=()), folder)
    return build.outcome, build.message


@pytest.mark.slow
def test_builds_say_with_precompiled_headers_what_they_say_without(cache: Path, tmp_path: Path) -> None:
    """Torch's headers are precompiled twice and parsed by three builds: a minute or two of two cores."""
    isolation = detect_isolation()
    assert inline.precompiled_headers(isolation) is None
    right = f"#include <torch/extension.h>\n{TWICE}"  # once more than torch does
    sources = {"right": right, "wrong": right.replace("twice", "thrice")}
    inline.make_precompiled(isolation)
    headers = inline.precompiled_headers(isolation)
    assert headers is not None and not list(cache.glob("making-*"))
    optimised = (sources["wrong"], tmp_path / "with", ', extra_cflags=["-O3"]')
    with ThreadPoolExecutor(2) as executor:
        with_flags = executor.submit(_build, *optimised)
        built = {name: _build(source, tmp_path / "with") for name, source in sources.items()}
        assert built["right"] == (None, "")
        assert built["wrong"][0] is Outcome.COMPILE_ERROR
        assert re.match(r"main\.cpp:\d+:\d+: error: 'twice' was not declared in this scope", built["wrong"][1])
        assert with_flags.result() == built["wrong"]

    narrow = Path(inline.__file__).parents[1] / "inside" / "fast_include"
    for name, more in (("plain", []), ("narrow", [f"-I{narrow}"])):  # -H marks a precompiled header that is used
        variables = re.search(r"^cflags = (.*)$", (headers / "build.ninja").read_text(), re.MULTILINE)
        assert variables is not None
        flags = [f"-I{headers / name}", *more, *shlex.split(variables[1]), "-DTORCH_EXTENSION_NAME=other"]
        flags.remove("-DTORCH_EXTENSION_NAME=kevin")
        compiler = shlex.split(os.environ.get("CXX", "c++"))
        command = [*compiler, "-H", *flags, "-fsyntax-only", str(headers / "main.cpp")]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        assert f"! {headers / name}/torch/extension.h.gch" in run.stderr, name


@pytest.mark.slow
def test_what_the_narrow_headers_leave_out_can_still_be_had(tmp_path: Path) -> None:
    """By including it after all, or by a macro where a module need not. Torch's headers are parsed three times."""
    narrow = Path(inline.__file__).parents[1] / "inside" / "fast_include"
    paths = [f"-I{narrow}", *(f"-I{path}" for path in cpp_extension.include_paths())]

    def failure(more: str, *flags: str) -> str:
        """The compiler's words where a unit that calls what is left out does not compile."""
        source = tmp_path / "unit.cpp"
        source.write_text(
            f"#include <torch/types.h>\n{more}auto where(const torch::Tensor& x) {{ return device_of(x); }}\n"
        )
        command = ["c++", "-std=c++20", "-fsyntax-only", *flags, *paths, str(source)]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        return run.stderr if run.returncode else ""

    everything = "#include <ATen/ATen.h>\nbool by_default() { return at::globalContext().allowTF32CuDNN(); }\n"
    assert "device_of" in failure("")
    assert failure(everything) == failure("", "-DKEVIN_DEVICE_OF") == ""


def test_they_are_made_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []
    monkeypatch.setattr(inline, "precompile", lambda folder, isolation: made.append(folder))
    isolation = detect_isolation()
    folder = inline._headers_folder(isolation)
    other = cache / "making-other"
    other.mkdir(parents=True)
    inline.make_precompiled(isolation)
    assert not made, "another process is at it"
    os.utime(other, (time.time() - 3600,) * 2)
    inline.make_precompiled(isolation)
    assert len(made) == 1 and folder.is_dir() and not list(cache.glob("making-*")), "that one was killed"
    inline.start_precompiling(isolation)
    assert len(made) == 1


def test_builds_that_begin_together_make_them_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []

    def slow_thread(**options: object) -> SimpleNamespace:
        time.sleep(0.05)
        return SimpleNamespace(start=lambda: started.append(options))

    monkeypatch.setattr(inline, "threading", SimpleNamespace(Thread=slow_thread))
    with ThreadPoolExecutor(8) as executor:
        list(executor.map(inline.start_precompiling, [detect_isolation()] * 8))
    assert len(started) == 1


def test_builds_go_on_where_they_cannot_be_made(
    cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(folder: Path, isolation: object) -> None:
        raise CandidateFailed(Outcome.RUNTIME_ERROR, "exception", "no compiler")

    isolation = detect_isolation()
    monkeypatch.setattr(inline, "precompile", fail)
    inline.make_precompiled(isolation)
    assert "builds go on without: no compiler" in caplog.text
    monkeypatch.setattr(inline.shutil, "disk_usage", lambda path: SimpleNamespace(free=1 << 30))
    inline.make_precompiled(isolation)
    assert inline.precompiled_headers(isolation) is None and not list(cache.glob("*"))
