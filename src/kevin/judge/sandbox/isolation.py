"""The outer wall around a candidate: own namespaces, no network, a private /tmp, no more of the host than it needs.

What is there is used, and its name is recorded: ``apptainer`` where an image is named (the judge's, see
``containers/judge.def``), ``bubblewrap`` (mount, pid, network, ipc, uts and user namespaces, a file system of chosen
read-only folders), ``apptainer`` around the host's own programs, ``namespaces`` (util-linux ``unshare``: the same
namespaces without the private file system, which Landlock then covers for candidates, not for their compilers),
``none`` (only the limits that a cell puts on itself, see `inside.guard`). KEVIN_ISOLATION insists on one of them,
KEVIN_JUDGE_IMAGE names the image; ``pool.isolation`` and ``pool.image`` set them for the workers of a pool.
Not covered by any: side channels, kernel bugs, use of the memory bandwidth of the host.
"""

from __future__ import annotations

import atexit
import functools
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path

from kevin.core.errors import HarnessError, SandboxError
from kevin.core.scratch import scratch_folder
from kevin.judge.sandbox import apptainer

log = logging.getLogger(__name__)

_kept = ExitStack()
"""Folders that this process makes once."""
atexit.register(_kept.close)


class Isolation(StrEnum):
    APPTAINER = "apptainer"
    BUBBLEWRAP = "bubblewrap"
    NAMESPACES = "namespaces"
    NONE = "none"


HINTS = "KEVIN_HINTS"
"""Environment variable: ``no`` where another process of the same judge says what would isolate better."""
_SYSTEM = ("/usr", "/lib", "/lib64", "/lib32", "/bin", "/sbin", "/etc/ld.so.cache", "/etc/alternatives")
_OF_THE_HOST = ("PATH", "HOME", "CXX", "CUDA_HOME", "LD_LIBRARY_PATH")
"""Names what an image has of its own."""
_TMP_BYTES = 2 << 30
"""Of what bubblewrap gives a sandbox for temporary files, which is memory."""
_UNSHARE = ("unshare", "--user", "--map-root-user", "--net", "--ipc", "--uts", "--mount", "--pid", "--fork",
            "--kill-child", "--mount-proc")  # fmt: skip


def is_system(path: str | Path) -> bool:
    """Whether every sandbox of the host's own programs shows it anyway."""
    return any(Path(path).is_relative_to(folder) for folder in _SYSTEM)


@functools.cache
def with_parent() -> tuple[str, ...]:
    """What ends a program with this process, even where it is killed; nothing where there is no such tool."""
    argv = ("setpriv", "--pdeathsig", "KILL", "--")
    return argv if _works(argv) else ()


@functools.cache
def gpu_minor(uuid: str, listed: Path = Path("/proc/driver/nvidia/gpus")) -> str | None:
    """Number of a GPU's device file, as the driver lists it; None where it does not (a MIG instance, for one)."""
    for path in sorted(listed.glob("*/information")):
        text = path.read_text()
        if re.search(rf"^GPU UUID:\s*{re.escape(uuid)}\s*$", text, re.MULTILINE):
            found = re.search(r"^Device Minor:\s*(\d+)", text, re.MULTILINE)
            return found.group(1) if found else None
    return None


def gpu_devices(gpu: bool | str = True) -> list[str]:
    """Device files that CUDA opens: of all GPUs, or of the one with a UUID alone. That makes contexts sooner, too."""
    files = sorted(str(p) for p in Path("/dev").glob("nvidia*") if not p.is_dir())
    minor = gpu_minor(gpu) if isinstance(gpu, str) else None
    return [f for f in files if minor is None or f == f"/dev/nvidia{minor}" or not re.fullmatch(r"/dev/nvidia\d+", f)]


@functools.cache
def _can_limit_tmp() -> bool:
    """Whether bubblewrap's version, of 2022 or later, can; without, a /tmp may take half of the host's memory."""
    try:
        run = subprocess.run(["bwrap", "--help"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return "--size BYTES" in run.stdout + run.stderr


def _bwrap(read_only: Iterable[str], writable: Iterable[str], *, gpu: bool | str = False) -> list[str]:
    args = [
        shutil.which("bwrap") or "bwrap",
        "--unshare-all",
        "--die-with-parent",
        "--new-session",
        "--cap-drop",  # which root's processes keep in their own user namespace
        "ALL",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
    ]
    if _can_limit_tmp():
        args += ["--size", str(_TMP_BYTES)]
    args += ["--tmpfs", "/tmp", "--chdir", "/tmp"]
    for path in (*_SYSTEM, *read_only):
        p = Path(path)
        if p.is_symlink() and path in _SYSTEM:
            args += ["--symlink", str(p.readlink()), path]
        elif p.exists():
            args += ["--ro-bind", path, path]
    for path in writable:
        args += ["--bind", path, path]
    if gpu:
        args += ["--ro-bind", "/sys", "/sys"]
        for device in gpu_devices(gpu):
            args += ["--dev-bind", device, device]
    return args


def judge_image() -> Path | None:
    """The image that candidates run in, when one is named. Raises SandboxError or DataError when it is not usable."""
    name = os.environ.get("KEVIN_JUDGE_IMAGE")
    if not name:
        return None
    image = Path(name).resolve()
    if not image.exists():
        raise SandboxError(f"{name}: no such image (pool.image or KEVIN_JUDGE_IMAGE); build it: snakemake {name}")
    _checked(image)
    return image


def _image_files() -> Path | None:
    """The judge's image as Apptainer starts it fastest."""
    image = judge_image()
    return None if image is None else apptainer.mounted(image)


@functools.cache
def _checked(image: Path) -> str:
    """What tells this image from others: its digest; the path of one that is a folder."""
    return apptainer.check_digest(image) if image.is_file() else str(image)


@functools.cache
def _skeleton() -> Path:
    """A folder with mount points and nothing in them, which Apptainer takes for an image; made once a process."""
    root = _kept.enter_context(scratch_folder("kevin-skeleton-"))
    for name in ("tmp", "var/tmp", "proc", "sys", "dev", "etc", "root", "home", "opt", ".singularity.d/libs"):
        (root / name).mkdir(parents=True)
    for name in ("passwd", "group", "hosts", "resolv.conf", "localtime"):
        (root / "etc" / name).touch()
    (root / "etc/passwd").write_text(f"candidate:x:{os.getuid()}:{os.getgid()}::/tmp:/bin/sh\n")
    for path in _host_paths():
        if path.startswith("/tmp/"):  # Apptainer makes these in its own /tmp, but not where the image has them too
            continue
        inside = root / path.lstrip("/")
        (inside if Path(path).is_dir() else inside.parent).mkdir(parents=True, exist_ok=True)
        if not Path(path).is_dir():
            inside.touch()
    return root


def _host_paths() -> list[str]:
    return [p for p in (*_SYSTEM, *python_paths()) if Path(p).exists() and not p.startswith("/usr/")]


def _apptainer(
    argv: Sequence[str], read_only: Iterable[str], writable: Iterable[str], environment: Mapping[str, str], *, gpu: bool
) -> list[str]:
    """In the judge's image, or, without one, around the host's own programs."""
    image = _image_files()
    options = _apptainer_options(image)
    bound = [p for p in read_only if p not in python_paths() and not is_system(p)]
    left_out = ("HOME",) if image is None else _OF_THE_HOST
    kept = {name: value for name, value in environment.items() if name not in left_out}
    if image is not None:
        return apptainer.wrap_apptainer(argv, image, bound, writable, gpu, kept, options)
    env = shutil.which("env") or "/usr/bin/env"
    bound = [*_host_paths(), *bound]
    return apptainer.wrap_apptainer([env, *argv], _skeleton(), bound, writable, gpu, kept, options)


def _works(argv: Sequence[str]) -> bool:
    try:
        run = subprocess.run([*argv, "true"], capture_output=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return run.returncode == 0


@functools.cache
def _apptainer_options(image: Path | None) -> tuple[str, ...]:
    """What Apptainer must be told to start here: nothing, or to use a user namespace even as root.

    Raises:
        SandboxError: it cannot start, and why; asked again, it is tried again.
    """
    apptainer.version()
    said = ""
    for options in ((), ("--userns",)):
        bound = [] if image else _host_paths()
        argv = apptainer.wrap_apptainer(["true"], image or _skeleton(), bound, options=options)
        try:
            run = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        except (OSError, subprocess.TimeoutExpired) as e:
            raise SandboxError(f"Apptainer does not start here: {e}") from None
        if run.returncode == 0:
            return options
        said = said or run.stderr.strip()[-500:]
    raise SandboxError(f"Apptainer does not work here: {said}")


def _apptainer_works() -> bool:
    try:
        _apptainer_options(_image_files())
    except HarnessError as e:
        log.warning("%s", e)
        return False
    return True


@functools.cache
def detect_isolation() -> Isolation:
    """The isolation that is asked for, or the best that works here; tried once per process.

    Raises:
        SandboxError: what KEVIN_ISOLATION asks for, or the image's Apptainer, does not work here.
    """
    wanted = os.environ.get("KEVIN_ISOLATION", "auto")
    if wanted not in ("auto", *Isolation):
        raise SandboxError(f"KEVIN_ISOLATION is {wanted!r}; it can be auto, {', '.join(Isolation)}")
    if wanted == "auto" and judge_image() is not None:
        wanted = Isolation.APPTAINER
    tests = {
        Isolation.APPTAINER: _apptainer_works,
        Isolation.BUBBLEWRAP: lambda: bool(shutil.which("bwrap")) and _works(_bwrap([], [])),
        Isolation.NAMESPACES: lambda: bool(shutil.which("unshare")) and _works(_UNSHARE),
        Isolation.NONE: lambda: True,
    }
    if wanted != "auto":
        if not tests[Isolation(wanted)]():
            raise SandboxError(
                f"isolation by {wanted} is asked for and does not work here (pool.isolation, pool.image)"
            )
        return Isolation(wanted)
    if tests[Isolation.BUBBLEWRAP]():
        return Isolation.BUBBLEWRAP
    if shutil.which("apptainer") and _apptainer_works():
        return Isolation.APPTAINER
    hint = log.debug if os.environ.get(HINTS) == "no" else log.warning
    if tests[Isolation.NAMESPACES]():
        hint("bubblewrap is not usable here: candidates run in plain namespaces (apt-get install bubblewrap)")
        return Isolation.NAMESPACES
    hint("no bubblewrap, Apptainer or unprivileged namespaces here: candidates run with self-imposed limits only")
    return Isolation.NONE


def toolchain(isolation: Isolation) -> tuple[str, ...]:
    """What tells the compilers that builds come from apart: the image's digest, nothing for the host's own."""
    image = judge_image() if isolation is Isolation.APPTAINER else None
    if image is None:
        return ()
    return (_checked(image),)


def python_paths() -> list[str]:
    """Folders that the interpreter itself needs: its installation, the environment that it was started from, and
    packages that this one takes from elsewhere."""
    own = {sys.base_prefix, sys.prefix}
    packages = {p for p in map(Path, sys.path) if p.name in ("site-packages", "dist-packages") and p.is_dir()}
    return sorted(own | {str(p) for p in packages if not any(p.is_relative_to(folder) for folder in own)})


def readable_paths(extra: Iterable[str], *, gpu: bool | str = False) -> list[str]:
    """What a candidate may read, for Landlock: the system's libraries, the interpreter, ``extra``."""
    devices = ["/dev/null", "/dev/zero", "/dev/urandom", "/dev/random"]
    system = ["/sys", "/proc"] if gpu else ["/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system/cpu"]
    in_image = ["/opt", "/.singularity.d"]
    return [*_SYSTEM, *python_paths(), *in_image, *system, *devices, *extra]


def writable_paths(extra: Iterable[str], *, isolation: Isolation, gpu: bool | str = False) -> list[str]:
    """What a candidate may write, for Landlock: its scratch, a /tmp of its own, on a GPU the driver's device files."""
    private = ["/tmp"] if isolation in (Isolation.BUBBLEWRAP, Isolation.APPTAINER) else []
    return [*extra, *private, *(gpu_devices(gpu) if gpu else [])]


def wrap(
    argv: Sequence[str],
    *,
    isolation: Isolation,
    read_only: Iterable[str] = (),
    writable: Iterable[str] = (),
    gpu: bool | str = False,
    environment: Mapping[str, str] | None = None,
) -> list[str]:
    """The command line that runs ``argv`` isolated. Paths keep their names inside.

    ``gpu``: a UUID where one GPU is to be seen, which bubblewrap alone can do.
    ``environment`` is that of the caller's new process, which a container does not pass on by itself.
    """
    if isolation is Isolation.APPTAINER:
        return _apptainer(argv, read_only, writable, environment or {}, gpu=bool(gpu))
    if isolation is Isolation.BUBBLEWRAP:
        return [*_bwrap([*python_paths(), *read_only], writable, gpu=gpu), "--", *argv]
    if isolation is Isolation.NAMESPACES:
        return [*with_parent(), shutil.which("unshare") or "unshare", *_UNSHARE[1:], "--", *argv]
    return [*with_parent(), *argv]
