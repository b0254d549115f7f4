"""The cell of a ``c_abi`` kernel on a GPU: loads one shared object and calls its launcher on command.

Standard library only, no torch. Tensors live in device memory whose descriptor comes with the setup.
"""

import ctypes
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120

from channel import SCALARS, open_channel
from cuda import CudaError, Gpu
from guard import lock_down

_REASONS = {700: "illegal_memory_access", 719: "launch_failure", 2: "out_of_memory", 702: "launch_timeout",
            715: "illegal_instruction", 716: "misaligned_address"}  # fmt: skip


class _Launcher:
    """The candidate's launcher with every slot's arguments.

    It writes into buffers of this process, which are copied to the judge's when the clock has stopped, together with
    the bands around them.
    """

    def __init__(self, setup: dict, gpu: Gpu, base: int) -> None:
        self.gpu, self.base, self.launch = gpu, base, None
        self.late_pieces = setup["late_pieces"]
        num_out = setup["num_outputs"]
        slots = setup["slots"]
        self.band = setup["band_bytes"]
        self.outputs = []
        for a in slots[0][-num_out:]:
            size, at = a["num_bytes"], base + a["offset"]
            pointer = gpu.allocate(size + 2 * self.band) + self.band
            gpu.copy(pointer - self.band, at - self.band, self.band)
            gpu.copy(pointer + size, at + size, self.band)
            self.outputs.append((pointer, size))
        self._copies = setup.get("own_allocations", False)
        if self._copies:  # for a tool that knows allocations
            self.outputs = [(gpu.allocate(a["num_bytes"]), a["num_bytes"]) for a in slots[0][-num_out:]]
            slots = slots[:1]
        self.arguments = [self._arguments(args[:-num_out]) for args in slots]
        self.targets = [[base + a["offset"] for a in args[-num_out:]] for args in slots]

    def _arguments(self, args: list) -> tuple:
        values = [ctypes.c_void_p(self._place(a)) if "offset" in a else SCALARS[a["dtype"]](a["value"]) for a in args]
        return (*values, *(ctypes.c_void_p(pointer) for pointer, _ in self.outputs), self.gpu.stream)

    def _place(self, a: dict) -> int:
        place = self.base + a["offset"]
        if self._copies:
            shared, place = place, self.gpu.allocate(a["num_bytes"])
            self.gpu.copy(place, shared, a["num_bytes"])
        return place

    def __call__(self, slot: int) -> None:
        self.launch(*self.arguments[slot])

    def _poison(self) -> None:
        for pointer, size in self.outputs:
            self.gpu.fill(pointer, 0xFF, size)

    def _hand_over(self, slot: int) -> None:
        for target, (pointer, size) in zip(self.targets[slot], self.outputs):  # noqa: B905
            self.gpu.copy(target - self.band, pointer - self.band, size + 2 * self.band)

    def _deliver(self, slot: int) -> None:
        for source, target, size in self.late_pieces[slot]:
            self.gpu.copy(self.base + target, self.base + source, size)

    def in_a_row(self, slot: int, late: bool) -> None:
        """Without a clock; its outputs are handed over all the same."""
        if self._copies:
            return self(slot)
        self._poison()
        if late:
            self._deliver(slot)
        self.gpu.untimed(lambda: self(slot))
        return self._hand_over(slot)

    def timed(self, slot: int, late: bool) -> int:
        self._poison()
        deliver = (lambda: self._deliver(slot)) if late else None
        return self.gpu.timed(lambda: self(slot), lambda: self._hand_over(slot), deliver)


def _run(command: dict, launcher: _Launcher) -> list[int]:
    for slot in command["warm"]:
        launcher(slot)
    for slot in command["calls"] * command["burst"]:
        launcher.in_a_row(slot, command["late"])
    launcher.gpu.synchronize()
    if command["burst"]:
        return [0] * len(command["calls"])
    return [launcher.timed(slot, command["late"]) for slot in command["calls"]]


def main() -> None:
    made = []

    def start_device() -> dict:
        try:
            made.append(Gpu())
        except (OSError, CudaError) as e:
            return {"harness_error": str(e)}
        return {}

    channel, setup, shared_fd = open_channel(start_device)  # contexts are made when the judge says so
    try:
        gpu = made[0] if made else Gpu()
        base = gpu.import_shared(shared_fd, setup["shared_bytes"])
        launcher = _Launcher(setup, gpu, base)  # before the candidate is there: memory that is short is not its fault
        gpu.flush_l2()
        gpu.synchronize()
    except (OSError, CudaError) as e:
        channel.write(json.dumps({"harness_error": str(e)}).encode() + b"\n")
        return
    os.close(shared_fd)
    guards = lock_down(memory_bytes=None, num_threads=64, readable=setup["readable"], writable=setup["writable"])
    channel.write(json.dumps({"guards": guards}).encode() + b"\n")
    channel.readline()  # the command to load: what fails from here on is the candidate's
    try:
        library = ctypes.CDLL(setup["library"], mode=os.RTLD_NOW | os.RTLD_LOCAL)
        launcher.launch = library[setup["launcher"]]
        last_error = library["kevin_last_error"]
        library["kevin_load"]()  # the runtime with all kernels now, and not while others wait for the first call
    except (OSError, AttributeError) as e:
        channel.write(json.dumps({"error": str(e)}).encode() + b"\n")
        return
    launcher.launch.restype = None
    last_error.restype = ctypes.c_char_p
    channel.write(json.dumps({"ok": True}).encode() + b"\n")
    while line := channel.readline():
        try:
            reply = {"ns": _run(json.loads(line), launcher)}
            if error := last_error():
                reply = {"error": f"a kernel launch failed: {error.decode()}", "reason": "launch_error"}
        except CudaError as e:
            reply = {"error": str(e), "reason": _REASONS.get(e.code, "cuda_error")}
        channel.write(json.dumps(reply).encode() + b"\n")


if __name__ == "__main__":
    main()
