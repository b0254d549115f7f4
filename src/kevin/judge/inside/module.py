"""The cell of a ``load_inline`` candidate, on CPU or GPU: a Python module with a class `ModelNew`.

Three modes. ``build``: import the module, and make and call the model where only that compiles its extensions, into a
folder; report each build. ``run``: import it again with the built extensions, no compiler and no new process allowed,
and call the model on command. ``precompile``: no candidate; compile torch's headers for the builds of others.
Standard library and torch only; it knows offsets and a weight seed, never input seeds, expected outputs or tolerances.
"""

import base64
import contextlib
import ctypes
import hashlib
import io
import json
import mmap
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import traceback
import types

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120

import torch
from channel import open_channel
from cuda import Gpu
from guard import lock_down
from host import ColdClock

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


class _DeviceBytes:
    """A raw device pointer in the form that torch wraps without a copy."""

    def __init__(self, pointer: int, num_bytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (num_bytes,),
            "typestr": "|u1",
            "data": (pointer, False),
            "version": 3,
        }


class _Hardware:
    """Where tensors live and how a call is timed: host memory and the wall clock, or a GPU and its events."""

    def __init__(self, setup: dict, fd: int) -> None:
        num_bytes = setup["shared_bytes"]
        self.device = torch.device(setup["device"])
        self.gpu = None
        if setup["device"] == "cpu":
            self.cold_clock = ColdClock(setup["cache_bytes"], setup["num_threads"])
            self.shared = torch.frombuffer(mmap.mmap(fd, num_bytes), dtype=torch.uint8)
        else:
            torch.zeros(1, device="cuda")
            self.gpu = Gpu()
            self.gpu.stream = ctypes.c_void_p(0)  # torch's default stream
            self.base = self.gpu.import_shared(fd, num_bytes)
            self.shared = torch.as_tensor(_DeviceBytes(self.base, num_bytes), device="cuda")
            self.gpu.flush_l2()
            self.gpu.synchronize()
        os.close(fd)

    def timed(self, call, afterwards, late_pieces=()) -> int:
        """Nanoseconds of a call; ``afterwards`` runs, or is enqueued, right behind it, late inputs right before."""
        if self.gpu is not None:
            return self.gpu.timed(call, afterwards, lambda: self._deliver(late_pieces))
        elapsed = self.cold_clock(call)
        afterwards()
        return elapsed

    @property
    def waited_ns(self) -> int:
        """Of the last timed call, how long it waited for a core; a GPU's clock does not count that."""
        return 0 if self.gpu is not None else self.cold_clock.waited_ns

    def _deliver(self, late_pieces) -> None:
        for source, target, size in late_pieces:
            self.gpu.copy(self.base + target, self.base + source, size)

    def synchronize(self) -> None:
        if self.gpu is not None:
            self.gpu.synchronize()


def _is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, (MemoryError, torch.OutOfMemoryError))


def _excerpt(error: BaseException) -> str:
    """The error and the candidate's own frames."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == "kernel.py"]
    where = "".join(f"  line {f.lineno}, in {f.name}\n" for f in frames[-3:])
    return f"{where}{type(error).__name__}: {error}"


class _Builds:
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
            if self._first == _BINDINGS and self.precompiled:
                command = self._bindings_alone(build_directory)
            else:
                command = ["ninja", "-v", self._first]
            run = subprocess.run(command, cwd=build_directory, capture_output=True, text=True, check=False)
            if run.returncode:
                raise RuntimeError(run.stdout + run.stderr)
        return self._run_ninja(build_directory, *positional, **options)

    def _bindings_alone(self, build_directory: str) -> list[str]:
        """Torch's own command for them with its headers precompiled, which none that optimises can use."""
        compiler, flags = _ninja_variables(build_directory)
        source = os.path.join(build_directory, "main.cpp")  # noqa: PTH118
        headers = os.path.join(self.precompiled or "", "plain")  # noqa: PTH118
        kept = [f for f in flags if not f.startswith("-O")]
        return [*compiler, f"-I{headers}", *kept, "-c", source, "-o", "/dev/null"]


def _ninja_variables(folder: str) -> tuple[list[str], list[str]]:
    """The C++ compiler and its flags in the build file that torch wrote."""
    with open(os.path.join(folder, "build.ninja")) as f:  # noqa: PTH118, PTH123
        lines = dict(line.split(" = ", 1) for line in f.read().splitlines() if " = " in line and line[0] != " ")
    return shlex.split(lines["cxx"]), shlex.split(lines["cflags"])


def _precompile(folder: str) -> None:
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


def _module(name: str, source: str) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__file__ = f"{name}.py"
    sys.modules[name] = module
    exec(compile(source, module.__file__, "exec"), module.__dict__)
    return module


def _import_candidate(source: str, builds: _Builds) -> types.ModuleType:
    cpp_extension.load_inline = builds.load_inline
    if builds.building:
        cpp_extension._run_ninja_build = builds.run_ninja
    module = _module("kernel", source)
    if not isinstance(getattr(module, "ModelNew", None), type):
        raise AttributeError("the module defines no class ModelNew")
    return module


def _make_model(module: types.ModuleType, init) -> torch.nn.Module:
    args, kwargs = ((), init) if isinstance(init, dict) else (init, {})
    return module.ModelNew(*args, **kwargs)


def _build_the_rest(module: types.ModuleType, setup: dict, builds: _Builds) -> dict:
    """Make the model, and call it once, where the import compiled less than its source asks for.

    Returns:
        ``unbuilt``: what kept this from compiling anything more; a GPU may help.
    """
    named = setup["source"].count("load_inline(")
    if "load_inline" not in setup["source"] or (builds.log and len(builds.log) >= named):
        return {}
    device = "cuda" if setup["device"] == "cuda" and torch.cuda.is_available() else "cpu"
    try:
        task = _module("task", setup["task_source"])
        model = _make_model(module, task.get_init_inputs() if hasattr(task, "get_init_inputs") else [])
        if not builds.log:
            with torch.no_grad(), torch.device(device):
                inputs = task.get_inputs()
                model.to(device)(*[x.to(device) if isinstance(x, torch.Tensor) else x for x in inputs])
    except Exception as e:
        return {"unbuilt": _excerpt(e)}
    return {} if builds.log else {"unbuilt": "nothing was compiled"}


class _Model:
    """The candidate's model with views of every slot's tensors."""

    def __init__(self, setup: dict, hardware: _Hardware, model: torch.nn.Module) -> None:
        self.model = model
        num_in, num_out = setup["num_inputs"], setup["num_outputs"]
        views = [[self._view(hardware.shared, a) for a in slot] for slot in setup["slots"]]
        self.inputs = [v[:num_in] for v in views]
        self.parameters = [v[num_in : len(v) - num_out] for v in views]
        self.outputs = [v[len(v) - num_out :] for v in views]
        self.late_pieces = setup.get("late_pieces")
        state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        names = setup["parameter_names"]
        same = all(n in state and state[n].shape == p.shape for n, p in zip(names, self.parameters[0]))  # noqa: B905
        self.own = [state[n] for n in names] if same else None

    @staticmethod
    def _view(shared: torch.Tensor, a: dict):
        if "offset" not in a:
            return a["value"]
        dtype = getattr(torch, a["dtype"])
        count = 1
        for d in a["shape"]:
            count *= d
        return shared[a["offset"] : a["offset"] + count * dtype.itemsize].view(dtype).view(a["shape"])

    def kept_parameters(self, slot: int | None) -> str:
        """Whether they are those of a slot; None: they are not to be given others any more."""
        if slot is None:
            self.own = None
        if self.own is None:
            return "other"
        pairs = zip(self.own, self.parameters[slot])  # noqa: B905
        return "same" if all(torch.equal(own, given) for own, given in pairs) else "changed"

    def load_parameters(self, slot: int) -> None:
        if self.own is not None:
            with torch.no_grad():
                for own, given in zip(self.own, self.parameters[slot]):  # noqa: B905
                    own.copy_(given)

    def store(self, slot: int, result) -> dict | None:
        """Copy a result into the slot's outputs; an error reply when it cannot be one."""
        items = list(result) if isinstance(result, (tuple, list)) else [result]
        if len(items) != len(self.outputs[slot]):
            text = f"forward returned {len(items)} values, expected {len(self.outputs[slot])}"
            return {"error": text, "reason": "wrong_count"}
        for item, out in zip(items, self.outputs[slot]):  # noqa: B905
            if type(item) not in (torch.Tensor, torch.nn.Parameter):
                text = f"forward returned {type(item).__name__}, expected a plain torch.Tensor"
                return {"error": text, "reason": "wrong_type"}
            if item.shape != out.shape:
                text = f"the output has shape {tuple(item.shape)}, expected {tuple(out.shape)}"
                return {"error": text, "reason": "wrong_shape"}
            if item.dtype != out.dtype:
                return {"error": f"the output is {item.dtype}, expected {out.dtype}", "reason": "wrong_dtype"}
            if item.numel() > 1 and any(s == 0 and n > 1 for s, n in zip(item.stride(), item.shape)):  # noqa: B905
                return {"error": "the output is an expanded view (stride 0)", "reason": "wrong_strides"}
            out.copy_(item.detach())
        return None


def _run(command: dict, model: _Model, hardware: _Hardware) -> dict:
    forward = model.model
    with torch.no_grad():
        if command["load_parameters"]:
            model.load_parameters(command["calls"][0])
        elif command["warm"]:
            model.load_parameters(command["warm"][0])
        for slot in command["warm"]:
            forward(*model.inputs[slot])
        hardware.synchronize()
        if command.get("burst"):
            for _ in range(command["burst"]):
                forward(*model.inputs[command["calls"][0]])
            hardware.synchronize()
            return {"ns": [0]}
        elapsed, waited, results, problems = [], [], [], []
        on_gpu = hardware.gpu is not None
        for at, slot in enumerate(command["calls"]):
            inputs = model.inputs[slot]
            elapsed.append(
                hardware.timed(
                    lambda inputs=inputs: results.append(forward(*inputs)),
                    # on a GPU at once: the copy shows what was done when the clock stopped
                    lambda slot=slot, at=at: problems.append(model.store(slot, results[at])) if on_gpu else None,
                    model.late_pieces[slot] if command["late"] else (),
                )
            )
            waited.append(hardware.waited_ns)
        if not on_gpu:  # when all are timed: a copy in between would leave other caches than eager finds
            problems = [model.store(slot, result) for slot, result in zip(command["calls"], results)]  # noqa: B905
        hardware.synchronize()
        if problem := next((p for p in problems if p), None) or _aliasing(results):
            return problem
    return {"ns": elapsed, "waited_ns": waited}


def _aliasing(results: list) -> dict | None:
    """An error reply when two results that are alive together share memory: one static buffer is not an output."""
    tensors = [t for r in results for t in (r if isinstance(r, (tuple, list)) else [r]) if t.numel()]
    if len({t.untyped_storage().data_ptr() + t.storage_offset() * t.element_size() for t in tensors}) < len(tensors):
        return {
            "error": "two calls returned the same memory: results must not be overwritten",
            "reason": "wrong_aliasing",
        }
    return None


def _profile(slot: int | None, model: _Model, hardware: _Hardware) -> dict:
    """Names and device microseconds of what one call ran on the GPU, as CUPTI saw it; None only starts CUPTI.

    `torch.profiler` is this with seconds of imports around it.
    """
    from torch.autograd.profiler import profile

    with torch.no_grad(), profile(use_cpu=False, use_device="cuda", use_kineto=True) as prof:
        if slot is not None:
            model.model(*model.inputs[slot])
        hardware.synchronize()
    kernels: dict = {}
    for event in prof.function_events:
        if str(event.device_type).endswith("CUDA"):
            kernels[event.name] = kernels.get(event.name, 0.0) + event.device_time_total
    return {"kernels": sorted(kernels.items(), key=lambda kv: -kv[1])[:64]}


def _serve(channel, model: _Model, hardware: _Hardware) -> None:
    while line := channel.readline():
        command = json.loads(line)
        try:
            if "profile" in command:
                reply = _profile(command["profile"], model, hardware)
            elif "parameters" in command:
                reply = {"parameters": model.kept_parameters(command["parameters"])}
            else:
                reply = _run(command, model, hardware)
        except Exception as e:
            reply = {"error": _excerpt(e), "reason": "out_of_memory" if _is_out_of_memory(e) else "exception"}
        channel.write(json.dumps(reply).encode() + b"\n")


def main() -> None:
    channel, setup, shared_fd = open_channel()
    building = setup.get("mode") in ("build", "precompile")
    torch.set_num_threads(setup["num_threads"])
    hardware = None
    cuda = setup.get("device") == "cuda"
    # compilers name their temporary files alike in every sandbox, and /tmp may be shared
    os.environ.update({"TMPDIR": setup["build_folder"]} if building else {})
    if not building:
        try:
            hardware = _Hardware(setup, shared_fd)
        except (RuntimeError, OSError) as e:
            channel.write(json.dumps({"harness_error": str(e)}).encode() + b"\n")
            return
    elif cuda and not setup.get("pretend_gpu"):
        torch.cuda.is_available()  # the driver starts with system calls that are forbidden in a moment
    guards = lock_down(
        memory_bytes=None if building or cuda else setup["memory_bytes"],
        num_threads=64 if building or cuda else setup["num_threads"],
        readable=setup["readable"],
        writable=setup["writable"] + (["/tmp", "/dev/null"] if building else []),
        allow_processes=building,
        file_bytes=(4 if setup.get("mode") == "precompile" else 1) << 30,
    )
    channel.write(json.dumps({"guards": guards}).encode() + b"\n")
    channel.readline()  # the command to load: what fails from here on is the candidate's
    if setup.get("mode") == "precompile":
        try:
            _precompile(setup["build_folder"])
            reply = {"ok": True}
        except Exception as e:
            reply = {"error": _excerpt(e)}
        channel.write(json.dumps(reply).encode() + b"\n")
        return
    builds = _Builds(setup["build_folder"], building, setup.get("precompiled"))
    if setup.get("pretend_gpu"):
        torch.cuda.is_available = lambda: True  # to compile what a module keeps for a GPU
    try:
        module = _import_candidate(setup["source"], builds)
        if building:
            reply = {"ok": True, **_build_the_rest(module, setup, builds), "builds": builds.log}
        else:
            torch.manual_seed(setup["weight_seed"])
            init = torch.load(io.BytesIO(base64.b64decode(setup["init_inputs"])), weights_only=False)
            if setup["tf32"] == "off":
                torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
            made = _make_model(module, init).to(hardware.device, getattr(torch, setup["precision"]))
            model = _Model(setup, hardware, made)
            reply = {"ok": True}
    except BaseException as e:
        reply = {"error": _excerpt(e), "builds": builds.log}
        if _is_out_of_memory(e):
            reply["reason"] = "out_of_memory"
    channel.write(json.dumps(reply).encode() + b"\n")
    if not building and "error" not in reply:
        _serve(channel, model, hardware)


if __name__ == "__main__":
    main()
