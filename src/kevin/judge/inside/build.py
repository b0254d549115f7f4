"""Builds of a ``load_inline`` candidate: what stands in for `load_inline`, and torch's headers compiled beforehand."""

import contextlib
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import time
import types

import torch
from candidate import excerpt, make_model, run_source

_is_available = torch.cuda.is_available
torch.cuda.is_available = lambda: True  # the next import would ask the driver, and who has done so cannot be forked
from torch.utils import cpp_extension  # noqa: E402

torch.cuda.is_available = _is_available

_FAILED, _BINDINGS = "failed.txt", "main.o"
_NARROW = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fast_include")  # noqa: PTH100, PTH118, PTH120
_LEFT_OUT = {
    "KEVIN_BINDINGS": ("pybind11_",),
    "KEVIN_DEVICE_OF": ("device_of",),
    "KEVIN_COMPLEX": ("complex", "thrust"),
}
"""What puts back into the narrow headers of device code what they leave out, where a request has one of the words."""


class Builds:
    """Stands in for `load_inline`: builds into, or loads from, one folder a distinct request."""

    def __init__(self, folder: str, building: bool, precompiled: str | None) -> None:
        self.folder, self.building = folder, building
        self.precompiled = precompiled
        self.log: list[dict] = []
        self._original = cpp_extension.load_inline
        self._run_ninja = cpp_extension._run_ninja_build
        self._first: str | None = None
        """The object to compile before any other."""

    @staticmethod
    def _built_name(folder: str, name: str) -> str:
        """What torch called it: ``name``, or ``name_v1`` and so on where another build of that name came before."""
        there = os.listdir(folder) if os.path.isdir(folder) else []  # noqa: PTH112, PTH208
        if _FAILED in there:
            with open(os.path.join(folder, _FAILED)) as f:  # noqa: PTH118, PTH123
                raise RuntimeError(f.read())
        built = [f for f in there if f.endswith(".so")]
        if len(built) != 1:
            raise RuntimeError(f"extension {name!r} was not built: builds must not depend on the inputs")
        return built[0].removesuffix(".so")

    def load_inline(self, name, *positional, **options):
        request = json.dumps([name, positional, options], default=str, sort_keys=True)
        digest = hashlib.sha256(request.encode()).hexdigest()[:24]
        folder = os.path.join(self.folder, digest)  # noqa: PTH118
        for ignored in ("build_directory", "verbose"):
            options.pop(ignored, None)
        if not self.building:
            return cpp_extension._import_module_from_library(self._built_name(folder, name), folder, True)
        os.makedirs(folder, exist_ok=True)  # noqa: PTH103
        start = time.perf_counter()
        arguments = (name, *positional)
        entry = {"name": name, "error": None, "headers": "narrow"}
        self.log.append(entry)
        versions = cpp_extension.JIT_EXTENSION_VERSIONER.entries
        before = dict(versions)
        try:
            try:
                first = [os.path.join(self.precompiled, "narrow")] if self.precompiled else []  # noqa: PTH118
                paths = [*first, _NARROW, *(options.get("extra_include_paths") or [])]
                narrow = {**options, "extra_include_paths": paths}
                lower = request.lower()
                named = [f"-D{macro}" for macro, words in _LEFT_OUT.items() if any(w in lower for w in words)]
                narrow["extra_cuda_cflags"] = [*(options.get("extra_cuda_cflags") or []), *named]
                return self._original(*arguments, build_directory=folder, verbose=False, **narrow)
            except (RuntimeError, ImportError) as e:  # it does not compile, or lacks symbols
                # what the narrow headers lack, torch's own have; and their error text is the one to report
                entry["headers"] = "plain"
                entry["narrow_seconds"] = time.perf_counter() - start
                versions.clear()
                versions.update(before)  # under the name that it has without us
                failed = re.search(r"^FAILED: (?:\[.*\] )?(\S+\.o)\b", str(e), re.MULTILINE)
                self._first = failed and failed.group(1)
                if self.precompiled:
                    own = os.path.join(self.precompiled, "plain")  # noqa: PTH118
                    options["extra_include_paths"] = [own, *(options.get("extra_include_paths") or [])]
                return self._original(*arguments, build_directory=folder, verbose=False, **options)
        except BaseException as e:
            entry["error"] = str(e)
            with open(os.path.join(folder, _FAILED), "w") as f:  # noqa: PTH118, PTH123
                f.write(f"Error building extension {name!r}: {e}")
            raise
        finally:
            self._first = None
            entry["seconds"] = time.perf_counter() - start

    def run_ninja(self, build_directory, *positional, **options):
        """As torch's; what fails again first of all spares compiling the rest."""
        if self._first is not None:
            alone = self._bindings_alone(build_directory) if self._first == _BINDINGS and self.precompiled else None
            command = alone or ["ninja", "-v", self._first]
            run = subprocess.run(command, cwd=build_directory, capture_output=True, text=True, check=False)
            if run.returncode:
                raise RuntimeError(run.stdout + run.stderr)
        return self._run_ninja(build_directory, *positional, **options)

    def _bindings_alone(self, build_directory: str) -> list[str] | None:
        """Torch's own command for bindings that are optimised, without that: else no precompiled header can be used."""
        compiler, flags = _ninja_variables(build_directory)
        if not any(f.startswith("-O") for f in flags):
            return None
        source = os.path.join(build_directory, "main.cpp")  # noqa: PTH118
        kept = [f for f in flags if not f.startswith("-O")]
        return [*compiler, *kept, "-c", source, "-o", "/dev/null"]


def _ninja_variables(folder: str) -> tuple[list[str], list[str]]:
    """The C++ compiler and its flags in the build file that torch wrote."""
    with open(os.path.join(folder, "build.ninja")) as f:  # noqa: PTH118, PTH123
        lines = dict(line.split(" = ", 1) for line in f.read().split("\n") if " = " in line and line[0] != " ")
    return shlex.split(lines["cxx"]), shlex.split(lines["cflags"])


def precompile(folder: str) -> None:
    """``narrow/torch/extension.h.gch`` and ``plain/...``, side by side, with the flags that torch builds with."""

    class _WrittenError(Exception):
        pass

    def stop(*positional, **options):
        raise _WrittenError

    cpp_extension._run_ninja_build = stop
    with contextlib.suppress(_WrittenError):
        cpp_extension.load_inline("kevin", "", build_directory=folder)
    compiler, flags = _ninja_variables(folder)
    plain_paths = [p for p in cpp_extension.include_paths() if os.path.exists(os.path.join(p, "torch/extension.h"))]  # noqa: PTH110, PTH118
    running = []
    for name, root in (("narrow", _NARROW), ("plain", plain_paths[0])):
        target = os.path.join(folder, name, "torch")  # noqa: PTH118
        os.makedirs(target)  # noqa: PTH103
        own = [f"-I{_NARROW}"] if name == "narrow" else []
        kept = [f for f in flags if not f.startswith("-DTORCH_EXTENSION_NAME")]
        header = os.path.join(target, "extension.h")  # noqa: PTH118
        shutil.copy2(os.path.join(root, "torch", "extension.h"), header)  # noqa: PTH118  # found where it is included again
        command = [*compiler, *own, *kept, "-x", "c++-header", header, "-o", os.path.join(target, "extension.h.gch")]  # noqa: PTH118
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    said = [process.communicate()[0] for process in running]
    if any(process.returncode for process in running):
        raise RuntimeError("\n".join(said)[-2000:])


def install(builds: Builds) -> None:
    """Have whoever asks torch for an extension ask these instead."""
    cpp_extension.load_inline = builds.load_inline
    if builds.building:
        cpp_extension._run_ninja_build = builds.run_ninja


def build_the_rest(module: types.ModuleType, setup: dict, builds: Builds) -> dict:
    """Make the model, and call it once, where the import compiled less than its source asks for.

    Returns:
        ``unbuilt``: what kept this from compiling anything more; a GPU may help.
    """
    named = setup["source"].count("load_inline(")
    if "load_inline" not in setup["source"] or (builds.log and len(builds.log) >= named):
        return {}
    device = "cuda" if setup["device"] == "cuda" and torch.cuda.is_available() else "cpu"
    try:
        task = run_source("task", setup["task_source"])
        model = make_model(module, task.get_init_inputs() if hasattr(task, "get_init_inputs") else [])
        if not builds.log:
            with torch.no_grad(), torch.device(device):
                inputs = task.get_inputs()
                model.to(device)(*[x.to(device) if isinstance(x, torch.Tensor) else x for x in inputs])
    except Exception as e:
        return {"unbuilt": excerpt(e)}
    return {} if builds.log else {"unbuilt": "nothing was compiled"}
