"""The cell of a ``c_abi`` kernel on a GPU: loads one shared object and calls its launcher on command.

Standard library only, no torch. Tensors live in device memory that the judge exports as the descriptor in argv[2].
"""

import ctypes
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120

from cuda import CudaError, Gpu
from guard import lock_down

_SCALARS = {"int64": ctypes.c_int64, "int32": ctypes.c_int32, "float64": ctypes.c_double, "float32": ctypes.c_float}
_REASONS = {700: "illegal_memory_access", 719: "launch_failure", 2: "out_of_memory", 702: "launch_timeout",
            715: "illegal_instruction", 716: "misaligned_address"}  # fmt: skip


def main() -> None:
    channel = os.fdopen(int(sys.argv[1]), "r+b", buffering=0)
    try:
        gpu = Gpu()
    except (OSError, CudaError) as e:
        channel.write(json.dumps({"harness_error": str(e)}).encode() + b"\n")
        return
    setup = json.loads(channel.readline())
    try:
        base = gpu.import_shared(int(sys.argv[2]), setup["shared_bytes"])
        gpu.flush_l2()
        gpu.synchronize()
    except CudaError as e:
        channel.write(json.dumps({"harness_error": str(e)}).encode() + b"\n")
        return
    os.close(int(sys.argv[2]))
    guards = lock_down(memory_bytes=None, num_threads=64, readable=setup["readable"], writable=setup["writable"])
    try:
        library = ctypes.CDLL(setup["library"], mode=os.RTLD_NOW | os.RTLD_LOCAL)
        launch = library[setup["launcher"]]
        last_error = library["kevin_last_error"]
    except (OSError, AttributeError) as e:
        channel.write(json.dumps({"error": str(e)}).encode() + b"\n")
        return
    launch.restype = None
    last_error.restype = ctypes.c_char_p
    channel.write(json.dumps({"ok": True, "guards": guards}).encode() + b"\n")

    # the kernel writes into buffers of this process, which are copied to the judge's when the clock has stopped
    num_outputs = setup["num_outputs"]
    outputs = [(gpu.allocate(a["num_bytes"]), a["num_bytes"]) for a in setup["slots"][0][-num_outputs:]]

    def arguments(args: list) -> tuple:
        values = [
            ctypes.c_void_p(base + a["offset"]) if "offset" in a else _SCALARS[a["dtype"]](a["value"])
            for a in args[:-num_outputs]
        ]
        return (*values, *(ctypes.c_void_p(pointer) for pointer, _ in outputs), gpu.stream)

    slots = [arguments(args) for args in setup["slots"]]
    targets = [[base + a["offset"] for a in args[-num_outputs:]] for args in setup["slots"]]

    def run(slot: int) -> int:
        for pointer, size in outputs:
            gpu.fill(pointer, 0xFF, size)

        def hand_over() -> None:
            for target, (pointer, size) in zip(targets[slot], outputs):  # noqa: B905
                gpu.copy(target, pointer, size)

        args = slots[slot]
        return gpu.timed(lambda: launch(*args), hand_over)

    while line := channel.readline():
        command = json.loads(line)
        try:
            for slot in command["warm"]:
                launch(*slots[slot])
            gpu.synchronize()
            reply = {"ns": [run(slot) for slot in command["calls"]]}
            if error := last_error():
                reply = {"error": f"a kernel launch failed: {error.decode()}", "reason": "launch_error"}
        except CudaError as e:
            reply = {"error": str(e), "reason": _REASONS.get(e.code, "cuda_error")}
        channel.write(json.dumps(reply).encode() + b"\n")


main()
