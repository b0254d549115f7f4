"""A cell's end of the channel to its judge: JSON lines, after the first of which the candidate may be loaded.

Standard library only. A cell is started before it is known which memory its candidate gets, so that one that starts
keeps none from others; the descriptor of that memory comes with the setup.
"""

import _socket  # the module around it takes longer to import than all else here
import ctypes
import io
import json
import os
import sys

SET_UP, START_DEVICE = b"\0", b"\1"
"""What the judge says before the setup: that it follows, or that the device is to be made ready already."""

SCALARS = {"int64": ctypes.c_int64, "int32": ctypes.c_int32, "float64": ctypes.c_double, "float32": ctypes.c_float,
           "bool": ctypes.c_bool}  # fmt: skip
"""Of a launcher's arguments, by the names that a setup has for them."""


def _leave_first_place(number: int) -> None:
    """Where this is the first process of its pid namespace, go on as a child of it, and let it end as that does.

    The first one has no default actions for signals: ``abort`` there ends as a segmentation fault.
    """
    if os.getpid() != 1 or (child := os.fork()) == 0:
        return
    os.close(number)
    while True:
        pid, status = os.wait()  # also of what a compiler has left
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


def open_channel(start_device=None) -> tuple[io.FileIO, dict, int | None]:
    """Tell the judge that all is imported, and wait for it.

    The channel's own descriptor is argv[1].

    Args:
        start_device: called when the judge wants the device ready before it says what for; returns the reply.

    Returns:
        The channel, the setup, and the descriptor of the shared memory where there is one.
    """
    number = int(sys.argv[1])
    _leave_first_place(number)
    judge = _socket.socket(fileno=number)
    judge.sendall(b"{}\n")
    said, messages, _, _ = judge.recvmsg(1, _socket.CMSG_SPACE(4))
    while said == START_DEVICE:
        judge.sendall(json.dumps(start_device() if start_device else {}).encode() + b"\n")
        said, messages, _, _ = judge.recvmsg(1, _socket.CMSG_SPACE(4))
    judge.detach()
    fds = [int.from_bytes(data[:4], sys.byteorder) for _, kind, data in messages if kind == _socket.SCM_RIGHTS]
    channel = os.fdopen(number, "r+b", buffering=0)
    return channel, json.loads(channel.readline()), fds[0] if fds else None
