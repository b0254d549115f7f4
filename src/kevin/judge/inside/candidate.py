"""A ``load_inline`` candidate in its cell: its module, its model, and the memory and clock that this is called with."""

import ctypes
import mmap
import os
import sys
import traceback
import types

import torch
from cuda import DeviceBytes, Gpu
from host import ColdClock
from pages import GuardedPages, TorchMemory


def is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, (MemoryError, torch.OutOfMemoryError))


def excerpt(error: BaseException) -> str:
    """The error and the candidate's own frames."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == "kernel.py"]
    where = "".join(f"  line {f.lineno}, in {f.name}\n" for f in frames[-3:])
    return f"{where}{type(error).__name__}: {error}"


def run_source(name: str, source: str) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__file__ = f"{name}.py"
    sys.modules[name] = module
    exec(compile(source, module.__file__, "exec"), module.__dict__)
    return module


def import_candidate(source: str) -> types.ModuleType:
    module = run_source("kernel", source)
    if not isinstance(getattr(module, "ModelNew", None), type):
        raise AttributeError("the module defines no class ModelNew")
    return module


def make_model(module: types.ModuleType, init) -> torch.nn.Module:
    args, kwargs = ((), init) if isinstance(init, dict) else (init, {})
    return module.ModelNew(*args, **kwargs)


def leaves(result) -> list:
    """What a model returned, nested tuples and lists flattened; numbers as tensors, as of the reference."""
    if isinstance(result, (tuple, list)):
        return [leaf for item in result for leaf in leaves(item)]
    return [torch.as_tensor(result) if isinstance(result, (bool, int, float)) else result]


class Hardware:
    """Where tensors live and how a call is timed: host memory and the wall clock, or a GPU and its events."""

    def __init__(self, setup: dict, fd: int) -> None:
        num_bytes = setup["shared_bytes"]
        self.device = torch.device(setup["device"])
        self.gpu = None
        if setup["device"] == "cpu":
            self.cold_clock = ColdClock(setup["cache_bytes"], setup["num_threads"])
            self.shared = torch.frombuffer(mmap.mmap(fd, num_bytes), dtype=torch.uint8)
            self.pages = GuardedPages(fd, setup["guarded"][0], setup["num_outputs"])
            self.torch_memory = TorchMemory(os.path.join(os.path.dirname(torch.__file__), "lib", "libc10.so"))  # noqa: PTH118, PTH120
        else:
            torch.zeros(1, device="cuda")
            self.gpu = Gpu()
            self.gpu.stream = ctypes.c_void_p(0)  # torch's default stream
            self.base = self.gpu.import_shared(fd, num_bytes)
            self.shared = torch.as_tensor(DeviceBytes(self.base, num_bytes), device="cuda")
            self.gpu.flush_l2()
            self.gpu.synchronize()
        os.close(fd)

    def timed(self, call, afterwards, late_pieces, cold) -> int:
        """Nanoseconds of a call; ``afterwards`` runs, or is enqueued, right behind it, late inputs right before."""
        if self.gpu is not None:
            return self.gpu.timed(call, afterwards, lambda: self.deliver(late_pieces))
        elapsed = self.cold_clock(call, cold)
        afterwards()
        return elapsed

    @property
    def waited_ns(self) -> int:
        """Of the last timed call, how long it waited for a core; a GPU's clock does not count that."""
        return 0 if self.gpu is not None else self.cold_clock.waited_ns

    def deliver(self, late_pieces) -> None:
        for source, target, size in late_pieces:
            self.gpu.copy(self.base + target, self.base + source, size)

    def synchronize(self) -> None:
        if self.gpu is not None:
            self.gpu.synchronize()


class Model:
    """The candidate's model with views of every slot's tensors."""

    def __init__(self, setup: dict, hardware: Hardware, model: torch.nn.Module) -> None:
        self.model = model
        num_in, num_out = setup["num_inputs"], setup["num_outputs"]
        views = [[self._view(hardware.shared, a) for a in slot] for slot in setup["slots"]]
        self.inputs = [v[:num_in] for v in views]
        self.own_allocations = setup.get("own_allocations", False)
        if self.own_allocations:  # for a tool that knows allocations
            self.inputs = [[x.clone() if isinstance(x, torch.Tensor) else x for x in self.inputs[0]]]
        self.parameters = [v[num_in : len(v) - num_out] for v in views]
        self.outputs = [v[len(v) - num_out :] for v in views]
        self.late_pieces = setup.get("late_pieces")
        self._guarded, self._num_inputs = setup.get("guarded"), num_in
        state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        names = setup["parameter_names"]
        same = all(n in state and state[n].shape == p.shape for n, p in zip(names, self.parameters[0]))  # noqa: B905
        self.own = [state[n] for n in names] if same else None

    @staticmethod
    def _view(shared: torch.Tensor, a: dict):
        if "offset" not in a:
            return a["value"]
        data = shared[a["offset"] : a["offset"] + a["num_bytes"]].view(getattr(torch, a["dtype"]))
        return data.as_strided(a["shape"], a["stride"]) if "stride" in a else data.view(a["shape"])

    def call_guarded(self, number: int, at_end: bool, hardware: Hardware, channel) -> dict | None:
        """On inputs between protected pages, in one of the places that the setup has; see `pages`.

        What is found beside a tensor that the candidate made; None where nothing is.
        """
        args = self._guarded[number]
        inputs = []
        for i, a in enumerate(args[: self._num_inputs]):
            if "offset" in a:
                memory = (ctypes.c_char * max(a["num_bytes"], 1)).from_address(hardware.pages.address(i, a))
                inputs.append(self._view(torch.frombuffer(memory, dtype=torch.uint8), {**a, "offset": 0}))
            else:
                inputs.append(a["value"])
        memory = hardware.torch_memory
        memory.install(at_end=at_end)
        try:
            with torch.no_grad():
                hardware.pages.call(channel, args, lambda: self.model(*inputs), memory.place)
        finally:
            memory.remove()
        return memory.harm

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
        items = leaves(result)
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
