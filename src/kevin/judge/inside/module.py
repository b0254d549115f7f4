"""The cell of a ``load_inline`` candidate on the CPU: a Python module with a class `ModelNew`.

Two modes. ``build``: import the module, let it compile its extensions into a folder, report each build. ``run``: import
it again with the built extensions, no compiler and no new process allowed, and call the model on command.
Standard library and torch only; it knows offsets and a weight seed, never input seeds, expected outputs or tolerances.
"""

import base64
import hashlib
import io
import json
import mmap
import os
import sys
import time
import traceback
import types

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120

import torch
from guard import lock_down
from torch.utils import cpp_extension


def _excerpt(error: BaseException) -> str:
    """The error and the candidate's own frames."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == "kernel.py"]
    where = "".join(f"  line {f.lineno}, in {f.name}\n" for f in frames[-3:])
    return f"{where}{type(error).__name__}: {error}"


class _Builds:
    """Stands in for `load_inline`: builds into, or loads from, one folder a distinct request."""

    def __init__(self, folder: str, building: bool) -> None:
        self.folder, self.building = folder, building
        self.log: list[dict] = []
        self._original = cpp_extension.load_inline

    def load_inline(self, name, cpp_sources="", cuda_sources="", functions=None, **options):
        request = json.dumps([name, cpp_sources, cuda_sources, functions, options], default=str, sort_keys=True)
        digest = hashlib.sha256(request.encode()).hexdigest()[:24]
        folder = os.path.join(self.folder, digest)  # noqa: PTH118
        for ignored in ("build_directory", "verbose"):
            options.pop(ignored, None)
        if not self.building:
            if not os.path.exists(os.path.join(folder, f"{name}.so")):  # noqa: PTH110, PTH118
                raise RuntimeError(f"extension {name!r} was not built: builds must not depend on the inputs")
            return cpp_extension._import_module_from_library(name, folder, True)
        os.makedirs(folder, exist_ok=True)  # noqa: PTH103
        start = time.perf_counter()
        try:
            module = self._original(
                name, cpp_sources, cuda_sources, functions, build_directory=folder, verbose=False, **options
            )
        except BaseException as e:
            self.log.append({"name": name, "error": str(e), "seconds": time.perf_counter() - start})
            raise
        self.log.append({"name": name, "error": None, "seconds": time.perf_counter() - start})
        return module


def _import_candidate(source: str, builds: _Builds) -> types.ModuleType:
    cpp_extension.load_inline = builds.load_inline
    module = types.ModuleType("kernel")
    module.__file__ = "kernel.py"
    sys.modules["kernel"] = module
    exec(compile(source, "kernel.py", "exec"), module.__dict__)
    if not isinstance(getattr(module, "ModelNew", None), type):
        raise AttributeError("the module defines no class ModelNew")
    return module


class _Model:
    """The candidate's model with views of every slot's tensors."""

    def __init__(self, setup: dict, shared: mmap.mmap, model: torch.nn.Module) -> None:
        self.model = model
        num_in, num_out = setup["num_inputs"], setup["num_outputs"]
        views = [[self._view(shared, a) for a in slot] for slot in setup["slots"]]
        self.inputs = [v[:num_in] for v in views]
        self.parameters = [v[num_in : len(v) - num_out] for v in views]
        self.outputs = [v[len(v) - num_out :] for v in views]
        state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        names = setup["parameter_names"]
        same = all(n in state and state[n].shape == p.shape for n, p in zip(names, self.parameters[0]))  # noqa: B905
        self.own = [state[n] for n in names] if same else None

    @staticmethod
    def _view(shared: mmap.mmap, a: dict):
        if "offset" not in a:
            return a["value"]
        dtype = getattr(torch, a["dtype"])
        count = 1
        for d in a["shape"]:
            count *= d
        if count == 0:
            return torch.empty(a["shape"], dtype=dtype)
        return torch.frombuffer(shared, dtype=dtype, count=count, offset=a["offset"]).view(a["shape"])

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


def _serve(channel, model: _Model) -> None:
    clock = time.perf_counter_ns
    forward = model.model
    while line := channel.readline():
        command = json.loads(line)
        try:
            with torch.no_grad():
                if command["load_parameters"]:
                    model.load_parameters(command["calls"][0])
                elif command["warm"]:
                    model.load_parameters(command["warm"][0])
                for slot in command["warm"]:
                    forward(*model.inputs[slot])
                elapsed, results = [], []
                for slot in command["calls"]:
                    inputs = model.inputs[slot]
                    start = clock()
                    result = forward(*inputs)
                    elapsed.append(clock() - start)
                    results.append(result)
                reply = None
                for slot, result in zip(command["calls"], results):  # noqa: B905
                    reply = reply or model.store(slot, result)
                del result, results
            reply = reply or {"ns": elapsed}
        except Exception as e:
            reply = {"error": _excerpt(e), "reason": "out_of_memory" if isinstance(e, MemoryError) else "exception"}
        channel.write(json.dumps(reply).encode() + b"\n")


def main() -> None:
    channel = os.fdopen(int(sys.argv[1]), "r+b", buffering=0)
    setup = json.loads(channel.readline())
    building = setup.get("mode") == "build"
    torch.set_num_threads(setup["num_threads"])
    shared = None
    if not building:
        shared = mmap.mmap(int(sys.argv[2]), setup["shared_bytes"])
        os.close(int(sys.argv[2]))
    guards = lock_down(
        memory_bytes=None if building else setup["memory_bytes"],
        num_threads=2 if building else setup["num_threads"],
        readable=setup["readable"],
        writable=setup["writable"] + ["/tmp", "/dev/null"] if building else setup["writable"],
        allow_processes=building,
    )
    builds = _Builds(setup["build_folder"], building)
    try:
        module = _import_candidate(setup["source"], builds)
        if building:
            reply = {"ok": True, "builds": builds.log}
        else:
            torch.manual_seed(setup["weight_seed"])
            init = torch.load(io.BytesIO(base64.b64decode(setup["init_inputs"])), weights_only=False)
            args, kwargs = ((), init) if isinstance(init, dict) else (init, {})
            model = _Model(setup, shared, module.ModelNew(*args, **kwargs))
            reply = {"ok": True, "guards": guards, "parameters_loadable": model.own is not None}
    except BaseException as e:
        reply = {"error": _excerpt(e), "builds": builds.log}
    channel.write(json.dumps(reply).encode() + b"\n")
    if not building and "error" not in reply:
        _serve(channel, model)


main()
