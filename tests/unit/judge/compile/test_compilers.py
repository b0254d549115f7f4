"""Compilers outside of the system's folders build kernels too; one that compiles nothing is no kernel's fault."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from core_fixtures import make_module

from kevin.core.errors import DeviceError, HarnessError, SandboxError
from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Kernel, Outcome, Task, TaskSpec
from kevin.judge.compile import compilers, inline, native
from kevin.judge.compile.native import Build, build_native
from kevin.judge.sandbox.isolation import Isolation, detect_isolation
from kevin.tasks.format import inspect_task

REFERENCE = make_module("return x + 1", "torch.rand(1000)")
RIGHT = 'extern "C" void launch(const float* x, float* out) { for (int i = 0; i < 1000; i++) out[i] = x[i] + 1; }'
MODULE = """
import torch
from torch.utils.cpp_extension import load_inline
own = load_inline("own", {source!r}, no_implicit_headers=True)
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x
"""
"""Without torch's headers: parsing them takes most of a minute, and says nothing of a compiler."""
EXTENSION = """
#include <Python.h>
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "own", "", OWN, nullptr};
PyMODINIT_FUNC PyInit_own() { return PyModule_Create(&module); }
"""
"""Which the system's compiler cannot build: it does not know OWN."""
TASK = Task(id="test", level=1, name="test", source=REFERENCE, origin="user")
SYSTEM_GXX = shutil.which("g++") or ""


@pytest.fixture(scope="module")
def spec() -> TaskSpec:
    found = inspect_task(REFERENCE, "test")
    assert found is not None
    return found


@pytest.fixture(autouse=True)
def _nothing_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_proven", set())
    monkeypatch.delenv("CXX", raising=False)


def _program(folder: Path, text: str) -> Path:
    """A compiler in ``folder/bin``, beside which stands a part of it that it cannot do without."""
    (folder / "bin").mkdir(parents=True)
    (folder / "lib").mkdir()
    (folder / "lib/part").write_text("part")
    path = folder / "bin/g++"
    path.write_text(f"#!/bin/sh\ncat {folder}/lib/part > /dev/null || exit 1\n{text}\n")
    path.chmod(0o755)
    return path


def _module(source: str) -> Kernel:
    return Kernel(dialect="load_inline", language="cpp", source=MODULE.format(source=source))


def _build(source: str, spec: TaskSpec, folder: Path, **changes: object) -> Build:
    protocol = JudgeProtocol(rules=()).model_copy(update=changes)
    return build_native(Kernel(dialect="c_abi", language="cpp", source=source), spec, protocol, folder)


def test_a_build_is_known_by_its_flags(spec: TaskSpec, tmp_path: Path) -> None:
    builds = [_build(RIGHT, spec, tmp_path, cpp_flags=flags) for flags in (("-O1",), ("-O2",), ("-O1",))]
    assert [build.cached for build in builds] == [False, False, True]
    assert builds[0].path == builds[2].path != builds[1].path


@pytest.mark.parametrize("named_by", ["PATH", "CXX", "a link"])
def test_a_compiler_in_a_folder_of_its_own_builds(
    named_by: str, spec: TaskSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gxx = _program(tmp_path / "modules/gcc-13", f'exec {SYSTEM_GXX} "$@"')
    if named_by == "CXX":
        monkeypatch.setenv("CXX", f"{gxx} -DOWN=1")
    else:
        if named_by == "a link":
            (tmp_path / "links/bin").mkdir(parents=True)
            (tmp_path / "links/bin/g++").symlink_to(gxx)
            gxx = tmp_path / "links/bin/g++"
        monkeypatch.setenv("PATH", f"{gxx.parent}:{os.environ['PATH']}")
    assert compilers.find_gxx(detect_isolation())[0] == str(gxx)
    build = _build(RIGHT, spec, tmp_path / "builds")
    assert build.path is not None, build.message


def test_what_it_built_finds_its_library_first(spec: TaskSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "gcc/lib64/libstdc++.so"
    gxx = _program(
        tmp_path / "gcc", f'case "$1" in -print-file-name=*) echo {own}; exit;; esac\nexec {SYSTEM_GXX} "$@"'
    )
    own.parent.mkdir()
    monkeypatch.setenv("CXX", str(gxx))
    assert compilers.runtime_folders("cpp", detect_isolation()) == [str(own.parent)]
    build = _build(RIGHT, spec, tmp_path / "builds")
    said = subprocess.run(["readelf", "-d", str(build.path)], capture_output=True, text=True, check=True).stdout
    assert f"[{own.parent}]" in said


def test_the_systems_own_compiler_needs_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert (
        compilers.compiler_folders("cpp", detect_isolation()) == []
        and compilers.runtime_folders("cpp", detect_isolation()) == []
    )


def test_a_home_is_not_shown_for_a_compiler_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gxx = _program(tmp_path, f'exec {SYSTEM_GXX} "$@"')
    monkeypatch.setenv("CXX", str(gxx))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert compilers.compiler_folders("cpp", detect_isolation()) == [str(tmp_path / "bin")]
    monkeypatch.setenv("HOME", "/somewhere/else")
    assert compilers.compiler_folders("cpp", detect_isolation()) == [str(tmp_path)]


@pytest.mark.parametrize("cxx", ["no-such-g++", "/no/such/g++ -O2", "~/bin/g++", "CCACHE_DIR=/tmp g++", 'g++ "-O2'])
def test_a_compiler_that_is_not_there_is_named(
    cxx: str, spec: TaskSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", cxx)
    with pytest.raises(DeviceError, match=re.escape(f"CXX is '{cxx}'")):
        _build(RIGHT, spec, tmp_path)


def test_a_compiler_that_compiles_nothing_is_no_kernels_fault(
    spec: TaskSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gxx = _program(tmp_path / "gcc", 'echo "g++: fatal error: cannot execute cc1plus" >&2; exit 1')
    monkeypatch.setenv("CXX", str(gxx))
    with pytest.raises(DeviceError, match=r"compiles nothing here, isolated by \w+.*cannot execute cc1plus.*with CXX"):
        _build(RIGHT, spec, tmp_path / "builds")


def test_flags_that_the_compiler_does_not_know_are_no_kernels_fault(spec: TaskSpec, tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match=r"-fno-such-flag.*correct judge\.cpp_flags"):
        _build(RIGHT, spec, tmp_path, cpp_flags=("-fno-such-flag",))


FORGED = {
    "the compiler's own failure": '#line 1 "g++: fatal error: cannot execute cc1plus"\n#include "x"',
    "a source that is not there": '#define SAY(x) _Pragma(#x)\nSAY(message(__BASE_FILE__ ": No such file"))\n#error',
    "nvcc's refusal": '#line 1 "nvcc fatal   : Unsupported gpu architecture"\n#error',
    "a sandbox that does not start": '#line 1 "bwrap: execvp g++: No such file or directory"\n#error',
}


@pytest.mark.parametrize("name", FORGED)
def test_a_kernel_cannot_pretend_that_the_compiler_failed(name: str, spec: TaskSpec, tmp_path: Path) -> None:
    for _ in range(2):  # whether the compiler has proven itself before or not
        try:
            build = _build(FORGED[name], spec, tmp_path)
        except HarnessError as e:
            pytest.fail(f"{detect_isolation()}: {e}")
        assert build.outcome is Outcome.COMPILE_ERROR and build.path is None


SAID = "internal compiler error: Segmentation fault signal terminated program cc1plus"
NO_CRASHES = {
    "a line of its own": f"#error {SAID}",
    "a line of the driver's": f'static_assert(false, "\\ng++: {SAID}\\nPlease submit a full bug report,\\n");',
    "a file of that name": f'#line 1 "g++: {SAID}"\n#error',
}


@pytest.mark.parametrize("name", NO_CRASHES)
def test_a_kernel_cannot_pretend_that_the_compiler_crashed(name: str, spec: TaskSpec, tmp_path: Path) -> None:
    build = _build(NO_CRASHES[name], spec, tmp_path)
    assert (build.outcome, build.reason) == (Outcome.COMPILE_ERROR, "compile_error")
    assert SAID in build.message


@pytest.mark.parametrize(
    ("end", "reason"),
    [("exit 4", "compiler_crash"), ("kill -SEGV $$", "compiler_crash"), ("exit 1", "compile_error")],
)
def test_a_compiler_that_crashes_is_told_as_such(
    end: str, reason: str, spec: TaskSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crashing(*given: Any) -> tuple[int | None, str]:
        folder = given[2].parent
        part = folder / "cc1plus"
        part.write_text(f"#!/bin/sh\necho 'kernel.cpp:1:1: internal compiler error: in a part of it' >&2\n{end}\n")
        part.chmod(0o755)
        return compiled(*given, f"-B{folder}/")

    compiled = native._compile
    monkeypatch.setattr(native, "require_working", lambda *given, **named: None)
    monkeypatch.setattr(native, "_compile", crashing)
    build = _build(RIGHT, spec, tmp_path)
    assert (build.outcome, build.reason) == (Outcome.COMPILE_ERROR, reason), build.message


def test_an_image_has_compilers_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEVIN_JUDGE_IMAGE", str(tmp_path))  # a folder counts as an image
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CXX", "/no/such/g++")
    isolation = Isolation.APPTAINER
    protocol = JudgeProtocol(rules=(), device="cuda", cuda_flags=("-arch=sm_90",))
    assert native.compiler_command("cpp", protocol, "a.cpp", "a.so", isolation)[0] == "g++"
    assert native.compiler_command("cuda", protocol, "a.cu", "a.so", isolation)[0] == "nvcc"
    assert compilers.compiler_folders("cuda", isolation) == compilers.runtime_folders("cpp", isolation) == []


@pytest.mark.parametrize(
    ("missing", "named"), [("Python.h", "Python.h is missing.*python3-dev"), ("ninja", "ninja is missing; pip install")]
)
def test_a_part_that_every_extension_needs_and_the_host_lacks_is_named(
    missing: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = _module('#error "of its own"')
    protocol = JudgeProtocol(rules=())
    inline._require_parts(kernel, protocol, tmp_path, Isolation.NONE)
    if missing == "Python.h":
        monkeypatch.setattr(inline.sysconfig, "get_path", lambda name: str(tmp_path))
    else:
        monkeypatch.setattr(inline, "search_path", lambda: str(tmp_path))
    with pytest.raises(DeviceError, match=named):
        inline._require_parts(kernel, protocol, tmp_path, Isolation.NONE)
    with pytest.raises(DeviceError, match=named):
        inline.build_inline(TASK, kernel, protocol, tmp_path / "builds")


def test_a_module_is_built_by_the_compiler_that_cxx_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gxx = _program(tmp_path / "modules/gcc-13", f'exec {SYSTEM_GXX} "$@"')
    own = gxx.rename(gxx.with_name("own-g++"))
    monkeypatch.setenv("PATH", f"{own.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("CXX", f"env {own.name} -DOWN=-1")
    build = inline.build_inline(TASK, _module(EXTENSION), JudgeProtocol(rules=()), tmp_path / "builds")
    assert build.path is not None and build.reason is None, build.message


@pytest.mark.parametrize("command", ["{launcher} {gxx} -DOWN=2", "{gxx} -DOWN=2", "env A=b {gxx} -DOWN=2 -DB='c d'"])
def test_a_compiler_of_several_words_is_one_program_for_a_module(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch looks for a program of the name that ``CXX`` is, spaces and all, and then every module fails to build."""
    launcher = _program(tmp_path / "launcher", 'exec "$@"')
    gxx = _program(tmp_path / "gcc", f'exec {SYSTEM_GXX} "$@"').rename(tmp_path / "gcc/bin/own-g++")
    monkeypatch.setenv("PATH", f"{gxx.parent}:/usr/bin:/bin")
    monkeypatch.setenv("CXX", command.format(launcher=launcher, gxx=gxx.name))
    isolation = detect_isolation()
    compiler = compilers.module_environment(isolation)["CXX"]
    assert shutil.which(compiler) == compiler
    shown = compilers.module_folders("cpp", isolation)
    assert {str(Path(compiler).parent), str(tmp_path / "gcc")} <= set(shown)
    (tmp_path / "unit.cpp").write_text("static_assert(OWN == 2);")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # as in a sandbox, where the user's is not
    subprocess.run([compiler, "-c", tmp_path / "unit.cpp", "-o", "/dev/null"], check=True)


def test_where_nothing_can_be_loaded_nothing_is_built(
    spec: TaskSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a system says of a file on a file system that is mounted noexec; the next test mounts one."""

    def refuse(*args: object, **options: object) -> None:
        raise PermissionError

    monkeypatch.setattr(compilers.mmap, "mmap", refuse)
    with pytest.raises(SandboxError, match=f"{tmp_path}/c: its file system is mounted noexec.*--store.*TMPDIR"):
        _build(RIGHT, spec, tmp_path / "c")
    with pytest.raises(SandboxError, match=f"{tmp_path}/module: its file system is mounted noexec"):
        inline.build_inline(TASK, _module(EXTENSION), JudgeProtocol(rules=()), tmp_path / "module")
    monkeypatch.setenv("CXX", f"{SYSTEM_GXX} -DOF_THIS_TEST=1")
    with pytest.raises(SandboxError, match=r"kevin-compiler-.* is mounted noexec"):
        compilers.module_environment(Isolation.NONE)


@pytest.mark.slow
def test_a_folder_whose_programs_cannot_be_run_is_no_kernels_fault(tmp_path: Path) -> None:
    """Mounted for a process of its own. Without the check a kernel is told that its library cannot be loaded."""
    program = f"""
from pathlib import Path
from kevin.core.errors import SandboxError
from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Kernel, Task, TaskSpec
from kevin.judge.evaluate import build_stage
task = Task(id="t", level=1, name="t", source="", origin="user", spec=TaskSpec(inputs=(), outputs=()))
for dialect in ("c_abi", "load_inline"):
    kernel = Kernel(dialect=dialect, language="cpp", source="int a;")
    try:
        print(build_stage(task, kernel, JudgeProtocol(), Path("{tmp_path}/store/builds")))
    except SandboxError as e:
        print(e)
"""
    mounted = f"mount -t tmpfs -o noexec none {tmp_path} && exec {sys.executable} -c '{program}'"
    run = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mounted],
        capture_output=True,
        text=True,
        check=False,
    )
    if "unshare" in run.stderr or "mount:" in run.stderr:
        pytest.skip(f"no file system can be mounted here: {run.stderr[-200:]}")
    assert run.stdout.count(f"{tmp_path}/store/builds: its file system is mounted noexec") == 2, run.stderr


def test_a_cuda_module_is_shown_the_compiler_of_its_c_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gxx = _program(tmp_path / "gcc", f'exec {SYSTEM_GXX} "$@"')
    monkeypatch.setenv("CXX", str(gxx))
    isolation = detect_isolation()
    assert str(tmp_path / "gcc") in compilers.module_folders("cuda", isolation)
    assert compilers.module_environment(isolation)["CXX"] == str(gxx)
    monkeypatch.setenv("CXX", "no-such-g++")
    assert str(tmp_path / "gcc") not in compilers.module_folders("cuda", isolation)
    assert compilers.module_environment(isolation)["CXX"] == "no-such-g++"


def test_a_compiler_that_compiles_nothing_is_no_modules_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five seconds: torch asks a compiler several things before it compiles."""
    gxx = _program(tmp_path / "gcc", 'echo "g++: fatal error: cannot execute cc1plus" >&2; exit 1')
    monkeypatch.setenv("CXX", str(gxx))
    with pytest.raises(DeviceError, match=r"compiles nothing here"):
        inline.build_inline(TASK, _module(EXTENSION), JudgeProtocol(rules=()), tmp_path / "builds")


def test_what_was_built_before_runs_where_there_is_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-g++")
    assert compilers.runtime_folders("cpp", Isolation.NONE) == []


OTHER = 'extern "C" void launch(const float* input, float* output, int n) { output[0] = input[0]; }'
WANTED = 'the harness calls extern "C" void launch(const float* x, float* out): give the launcher these arguments'
WANTED_CUDA = WANTED.replace("out)", "out, cudaStream_t stream)")
PYTORCH = "#include <torch/extension.h>\ntorch::Tensor add(torch::Tensor x) { return x + 1; }"
VECTOR = RIGHT.replace("{", "{ std::vector<float> v;", 1)
WIDE = "#include <immintrin.h>\n" + RIGHT.replace("{", "{ _mm512_storeu_ps(out, _mm512_loadu_ps(x));", 1)
SPAN = "#include <span>\n" + RIGHT.replace("{", "{ std::span<float> s(out, 1000);", 1)
CONCEPT = "template <class T> concept any = true;\n" + RIGHT
MANY = RIGHT.replace("{", "{\n  one = 1;\n  two = 2;\n  three = 3;\n  four = 4;\n", 1)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (OTHER, [WANTED, "kernel.cpp:1:17: error: conflicting declaration of C function"]),
        (PYTORCH, ["a kernel here is one file without PyTorch's headers", WANTED, "torch/extension.h: No such file"]),
        (VECTOR, ["'vector' is not a member of 'std'", "'std::vector' is defined in header '<vector>'"]),
        (WIDE, ["it is compiled with -O3 -std=c++17, and with no other flags", "error: inlining failed"]),
        (SPAN, ["it is compiled with -O3 -std=c++17, and with no other flags", "'span' is not a member of 'std'"]),
        (CONCEPT, ["it is compiled with -O3 -std=c++17, and with no other flags", "'concept' does not name a type"]),
        (MANY, ["error: 'one' was not declared", "error: 'two' was not declared", "error: 'three' was not declared"]),
    ],
)
def test_an_author_is_told_what_is_wanted_and_the_first_errors(
    source: str, told: list[str], spec: TaskSpec, tmp_path: Path
) -> None:
    build = _build(source, spec, tmp_path, cpp_flags=("-O3", "-std=c++17"))
    assert build.outcome is Outcome.COMPILE_ERROR
    lines = build.message.split("\n")
    places = [next((i for i, line in enumerate(lines) if text in line), None) for text in told]
    assert None not in places and places == sorted(places) and "'four'" not in build.message, build.message  # type: ignore[type-var]


NVCC = {
    """kernel.cu(2): error: more than one instance of overloaded function "launch" has "C" linkage""": [WANTED_CUDA],
    """kernel.cu(1): error: a __host__ function("launch") redeclared with __global__""": [WANTED_CUDA],
    """kernel.cu(1): error: identifier "half" is undefined""": ["#include <cuda_fp16.h> is missing"],
    """kernel.cu(1): error: identifier "n" is undefined""": [],
    """kernel.cu(5): error: __host__ or __device__ annotation on lambda requires --extended-lambda nvcc flag""": [
        "it is compiled with -O3 -arch=sm_90, and with no other flags"
    ],
}
"""Words of its, and what an author is told beside them."""


@pytest.mark.parametrize("said", NVCC)
def test_an_author_of_cuda_is_told_likewise(said: str, spec: TaskSpec) -> None:
    protocol = JudgeProtocol(device="cuda", cuda_flags=("-O3", "-arch=sm_90"))
    assert list(native.advice(said, "cuda", spec, protocol)) == NVCC[said]
