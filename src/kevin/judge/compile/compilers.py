"""Which compilers build kernels, and what a sandbox must show of the host for them.

A sandbox shows the system's folders. A compiler may stand elsewhere: a module of a cluster, a conda environment, /opt.
Then its installation is shown too while kernels are compiled, and the folder of its own runtime library to what it
built, which looks for it there first (``-rpath``): the system's may be older, or absent. The judge's image has
compilers of its own, and the host needs none.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import mmap
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from kevin.core.errors import DeviceError, SandboxError
from kevin.core.scratch import scratch_folder
from kevin.core.types import Language
from kevin.judge.sandbox.isolation import Isolation, is_system, toolchain

_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
_LIBRARIES = ("libstdc++.so", "libgomp.so")
_kept = contextlib.ExitStack()
"""Folders that this process makes once."""
atexit.register(_kept.close)


@functools.cache
def require_loadable(folder: Path) -> None:
    """Raises SandboxError where what is built in ``folder`` could not be loaded, so that no kernel is to blame."""
    with tempfile.TemporaryFile(dir=folder) as f:
        f.truncate(mmap.PAGESIZE)
        try:
            mmap.mmap(f.fileno(), mmap.PAGESIZE, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC).close()
        except PermissionError:
            raise SandboxError(
                f"{folder}: its file system is mounted noexec, so that no kernel built there can be loaded; name "
                f"another folder with --store, or with TMPDIR where there is none"
            ) from None


def find_gxx(isolation: Isolation) -> list[str]:
    """The C++ compiler's command: ``CXX``, or the first ``g++`` on PATH. Raises DeviceError where there is none."""
    if toolchain(isolation):
        return ["g++"]
    try:
        command = shlex.split(os.environ.get("CXX", "")) or ["g++"]
    except ValueError as e:
        raise DeviceError(f"CXX is {os.environ['CXX']!r}, which is no command ({e}): correct it or unset CXX") from None
    program = shutil.which(command[0])
    if program is None:
        if "CXX" in os.environ:
            raise DeviceError(f"CXX is {os.environ['CXX']!r}, and there is no such compiler: correct it or unset CXX")
        raise DeviceError("g++ was not found: install a C++ compiler (e.g. apt-get install g++) or set CXX")
    others = _programs(command[1:])
    return [str(Path(program).absolute()), *(others.get(word, word) for word in command[1:])]


def _programs(words: Sequence[str]) -> dict[str, str]:
    """The path of each that is a program: one that a launcher (ccache, distcc) starts stands before any option."""
    before = itertools.takewhile(lambda word: not word.startswith("-"), words)
    return {word: path for word in before if (path := shutil.which(word))}


@functools.cache
def _as_one_program(command: tuple[str, ...]) -> Path:
    """A script that calls a compiler of several words, for torch, which takes all of ``CXX`` for one program's name."""
    script = _kept.enter_context(scratch_folder("kevin-compiler-")) / "c++"
    require_loadable(script.parent)
    script.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    script.chmod(0o755)
    return script


def find_nvcc(isolation: Isolation) -> str:
    """Raises DeviceError where the CUDA toolkit is not installed."""
    if toolchain(isolation):
        return "nvcc"
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    nvcc = shutil.which("nvcc") or f"{home}/bin/nvcc"
    if not Path(nvcc).exists():
        raise DeviceError("nvcc was not found: install the CUDA toolkit or put it on PATH to judge CUDA kernels")
    return nvcc


def compiler_folders(language: Language, isolation: Isolation) -> list[str]:
    """Outside of the system's, what compilers of kernels in this language are made of. Raises DeviceError."""
    found: set[Path] = set()
    if toolchain(isolation):
        return []
    if language == "cuda":
        found |= {*_installation(find_nvcc(isolation))}
        if home := os.environ.get("CUDA_HOME"):
            found |= {path for path in (Path(home), Path(home).resolve()) if path.is_dir()}
    if _uses_gxx(language):
        command = tuple(find_gxx(isolation))
        found |= _libraries_of(command)
        for program in (command[0], *_programs(command[1:]).values()):
            found |= {*_installation(program)}
    return sorted(str(path) for path in found if not is_system(path))


def module_folders(language: Language, isolation: Isolation) -> list[str]:
    """The same for a module, whose extensions all have a part in C++, and which may do without any compiler."""
    found: set[str] = set()
    for part in {language, "cpp"}:
        with contextlib.suppress(DeviceError):
            found.update(compiler_folders(part, isolation))
    script = Path(module_environment(isolation).get("CXX", ""))
    if script.is_absolute() and script.exists() and not is_system(script):
        found.add(str(script.parent))
    return sorted(found)


def module_environment(isolation: Isolation) -> dict[str, str]:
    """``PATH`` and, where the user names one, ``CXX`` of a module's build: what torch takes its compilers from."""
    environment = {"PATH": search_path()}
    if os.environ.get("CXX"):
        environment["CXX"] = os.environ["CXX"]
        with contextlib.suppress(DeviceError):  # a module may do without
            command = find_gxx(isolation)
            environment["CXX"] = str(_as_one_program(tuple(command))) if len(command) > 1 else shlex.join(command)
    return environment


def runtime_folders(language: Language, isolation: Isolation) -> list[str]:
    """Where the C++ compiler's own libraries stand, unless in the system's folders, whose programs find them."""
    if toolchain(isolation) or not _uses_gxx(language):
        return []
    try:
        command = tuple(find_gxx(isolation))
    except DeviceError:  # what was built before runs without a compiler
        return []
    return [str(path) for path in _runtime(command) if not is_system(path)]


def search_path() -> str:
    """PATH for a build of a module: the interpreter's and the system's folders, then those of compilers elsewhere."""
    found = [shutil.which("nvcc"), shutil.which("g++"), shutil.which("c++")]
    others = [str(Path(p).parent) for p in found if p and not is_system(Path(p))]
    return ":".join(dict.fromkeys([f"{sys.prefix}/bin", "/usr/local/cuda/bin", *_SYSTEM_PATH.split(":"), *others]))


def _uses_gxx(language: Language) -> bool:
    """nvcc has the system's g++ compile what runs on the host, where there is one."""
    return language != "cuda" or shutil.which("g++", path=_SYSTEM_PATH) is None


def _installation(program: str) -> Iterator[Path]:
    """Its folder and what stands beside it, by its name and by what that leads to; nobody's home as a whole."""
    for path in (Path(program).absolute(), Path(program).resolve()):
        root = path.parent.parent if path.parent.name == "bin" else path.parent
        home = Path(os.path.expanduser("~")).resolve()  # noqa: PTH111  (pathlib fails where the user has no home)
        yield path.parent if home.is_relative_to(root.resolve()) else root


def _ask(command: tuple[str, ...], *question: str) -> str:
    try:
        return subprocess.run([*command, *question], capture_output=True, text=True, timeout=30, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


@functools.cache
def _libraries_of(command: tuple[str, ...]) -> frozenset[Path]:
    """Folders of the libraries that the compiler itself is linked with."""
    own = _ask(command, "-print-prog-name=cc1plus").strip()
    said = _ask(("ldd",), own) if Path(own).is_absolute() else ""
    return frozenset(Path(path).parent for path in re.findall(r"=> (/\S+)", said))


@functools.cache
def _runtime(command: tuple[str, ...]) -> tuple[Path, ...]:
    named = (Path(_ask(command, f"-print-file-name={name}").strip()) for name in _LIBRARIES)
    return tuple(dict.fromkeys(path.resolve().parent for path in named if path.is_absolute()))
