"""The cell of a ``c_abi`` kernel on the CPU: loads one shared object and calls its launcher on command.

Standard library only. Tensors live in the shared memory file that comes with the setup. It knows offsets, never seeds,
expected outputs or tolerances.
"""

import ctypes
import json
import mmap
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120

from channel import SCALARS, open_channel
from guard import lock_down
from host import ColdClock
from pages import GuardedPages


def _run(command: dict, cold_clock: ColdClock, slots: list, launch) -> dict:
    for slot in command["warm"] + command["calls"] * command["burst"]:
        launch(*slots[slot])
    if command["burst"]:
        return {"ns": [0] * len(command["calls"])}
    ns, waited_ns = [], []
    for slot in command["calls"]:
        ns.append(cold_clock(lambda args=slots[slot]: launch(*args), command["cold"]))
        waited_ns.append(cold_clock.waited_ns)
    return {"ns": ns, "waited_ns": waited_ns}


def main() -> None:
    channel, setup, shared_fd = open_channel()
    shared = mmap.mmap(shared_fd, setup["shared_bytes"])
    pages = GuardedPages(shared_fd, setup["guarded"][0], setup["num_outputs"])
    os.close(shared_fd)
    base = ctypes.addressof(ctypes.c_char.from_buffer(shared))
    cold_clock = ColdClock(setup["cache_bytes"], setup["num_threads"])
    guards = lock_down(
        memory_bytes=setup["memory_bytes"],
        num_threads=setup["num_threads"],
        readable=setup["readable"],
        writable=setup["writable"],
    )
    channel.write(json.dumps({"guards": guards}).encode() + b"\n")
    channel.readline()  # the command to load: what fails from here on is the candidate's
    try:
        library = ctypes.CDLL(setup["library"], mode=os.RTLD_NOW | os.RTLD_LOCAL)
        launch = library[setup["launcher"]]
    except (OSError, AttributeError) as e:
        channel.write(json.dumps({"error": str(e)}).encode() + b"\n")
        return
    launch.restype = None
    channel.write(json.dumps({"ok": True}).encode() + b"\n")

    def arguments(args: list[dict], address) -> tuple:
        return tuple(
            ctypes.c_void_p(address(i, a)) if "offset" in a else SCALARS[a["dtype"]](a["value"])
            for i, a in enumerate(args)
        )

    slots = [arguments(args, lambda _, a: base + a["offset"]) for args in setup["slots"]]
    while line := channel.readline():
        command = json.loads(line)
        if "guarded" in command:
            args = setup["guarded"][command["guarded"]]
            pages.call(channel, args, lambda args=args: launch(*arguments(args, pages.address)))
            reply = {"ok": True}
        else:
            reply = _run(command, cold_clock, slots, launch)
        channel.write(json.dumps(reply).encode() + b"\n")


if __name__ == "__main__":
    main()
