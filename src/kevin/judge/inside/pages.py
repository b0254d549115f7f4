"""Tensors between protected pages, on a host: where a call touches what is not its own. Standard library only.

Inputs may not be written, either. A fault ends the process; before that, the judge hears of it over the channel.
"""

import ctypes
import json
import os
import platform

_GUARD_BYTES = 1 << 20
_PROT_NONE, _PROT_READ, _PROT_WRITE = 0, 1, 2
_MAP_SHARED, _MAP_PRIVATE, _MAP_FIXED, _MAP_ANONYMOUS, _MAP_NORESERVE = 1, 2, 0x10, 0x20, 0x4000
_SIGSEGV, _SA_SIGINFO, _SA_NODEFER = 11, 4, 0x40000000
_FAULT_ADDRESS = 16
"""Place in a siginfo_t."""
_ERROR_CODE, _WAS_WRITE = 192, 2
"""Of the page fault: place in a ucontext_t, and its bit; on x86-64."""

_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class _Action(ctypes.Structure):
    """glibc's struct sigaction."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ubyte * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


class GuardedPages:
    """The pages of one slot's tensors, each with protected ones before and behind."""

    def __init__(self, fd: int, arguments: list, num_outputs: int) -> None:
        """``arguments``: as of a slot, each tensor's with ``pages``, [offset, bytes] in ``fd``; outputs stand last."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.mmap.restype = ctypes.c_void_p
        self._libc.mmap.argtypes = (
            ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
        )  # fmt: skip
        self._starts: list = []
        self._sizes = [a.get("pages", (0, 0))[1] for a in arguments]
        for i, a in enumerate(arguments):
            is_output = i >= len(arguments) - num_outputs
            self._starts.append(self._map(fd, *a["pages"], writable=is_output) if "pages" in a else 0)

    def _map(self, fd: int, offset: int, num_bytes: int, *, writable: bool) -> int:
        hidden = _MAP_PRIVATE | _MAP_ANONYMOUS | _MAP_NORESERVE
        around = self._mmap(None, num_bytes + 2 * _GUARD_BYTES, _PROT_NONE, hidden, -1, 0)
        allowed = _PROT_READ | (_PROT_WRITE if writable else 0)
        return self._mmap(around + _GUARD_BYTES, num_bytes, allowed, _MAP_SHARED | _MAP_FIXED, fd, offset)

    def _mmap(self, *args: object) -> int:
        address = self._libc.mmap(*args)
        if address == ctypes.c_void_p(-1).value:
            raise OSError(ctypes.get_errno(), "no address space for guarded tensors")
        return address

    def address(self, number: int, argument: dict) -> int:
        """Of a tensor, by its number among the arguments."""
        return self._starts[number] + argument["offset"] - argument["pages"][0]

    def call(self, channel, arguments: list, call, also=None) -> None:
        """``call()``; where it touches what it must not, say so on the channel and end this process.

        ``also``: gives, for an address, which other memory it is in or beside.
        """

        def on_fault(_signal: int, info: int, context: int) -> None:
            address = ctypes.c_uint64.from_address(info + _FAULT_ADDRESS).value
            fault = self._place(address, arguments) or (also(address) if also else {})
            if platform.machine() == "x86_64":
                fault["write"] = bool(ctypes.c_uint64.from_address(context + _ERROR_CODE).value & _WAS_WRITE)
            os.write(channel.fileno(), json.dumps({"fault": fault}).encode() + b"\n")
            os._exit(1)

        handler = _HANDLER(on_fault)  # alive as long as it is installed
        action, before = _Action(), _Action()
        action.handler, action.flags = ctypes.cast(handler, ctypes.c_void_p).value, _SA_SIGINFO | _SA_NODEFER
        self._libc.sigaction(_SIGSEGV, ctypes.byref(action), ctypes.byref(before))
        try:
            call()
        finally:
            self._libc.sigaction(_SIGSEGV, ctypes.byref(before), None)

    def _place(self, address: int, arguments: list) -> dict:
        """Which tensor an address is in or beside, and its distance in bytes from where that begins."""
        for i, (start, size) in enumerate(zip(self._starts, self._sizes)):  # noqa: B905
            if start and start - _GUARD_BYTES <= address < start + size + _GUARD_BYTES:
                return {"argument": i, "bytes": address - self.address(i, arguments[i])}
        return {}
