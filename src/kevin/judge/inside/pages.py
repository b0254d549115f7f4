"""Tensors between protected pages, on a host: where a call touches what is not its own. Standard library only.

Those that the judge gives: inputs may not be written, either. And what PyTorch allocates during a call: outputs that a
module makes, and all else. A fault ends the process; before that, the judge hears of it over the channel.
"""

import ctypes
import json
import mmap
import os
import platform
import struct

_GUARD_BYTES = 1 << 20
_PROT_NONE, _PROT_READ, _PROT_WRITE = 0, 1, 2
_FAILED = ctypes.c_void_p(-1).value
_MAP_SHARED, _MAP_PRIVATE, _MAP_FIXED, _MAP_ANONYMOUS, _MAP_NORESERVE = 1, 2, 0x10, 0x20, 0x4000
_SIGSEGV, _SA_SIGINFO, _SA_NODEFER = 11, 4, 0x40000000
_FAULT_ADDRESS = 16
"""Place in a siginfo_t."""
_ERROR_CODE, _WAS_WRITE = 192, 2
"""Of the page fault: place in a ucontext_t, and its bit; on x86-64."""

_PAGE = mmap.PAGESIZE
_TORCH_GUARD_BYTES = 16 * _PAGE
"""Before and behind what PyTorch allocates."""
_MOST_LIVE = 4096
"""Allocations that are ours at a time; what comes then is as always."""
_PATTERN = 0x5C
_RTLD_NOLOAD, _RTLD_DI_LINKMAP = 4, 2
_NAMES, _SYMBOLS, _CALLS, _CALLS_BYTES, _DATA, _DATA_BYTES = 5, 6, 23, 2, 7, 8
"""Tags of a library's dynamic section (``elf.h``): strings, symbols, and places that hold addresses of symbols."""
_SYMBOL_BYTES, _PLACE_BYTES = 24, 24

_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_Allocate = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
_Free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def _c_library() -> ctypes.CDLL:
    """With the types of what maps memory."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
    )  # fmt: skip
    libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    return libc


def _reserve(libc: ctypes.CDLL, num_bytes: int) -> int | None:
    """Address of so many bytes of protected pages; None where there is no room for them."""
    hidden = _MAP_PRIVATE | _MAP_ANONYMOUS | _MAP_NORESERVE
    address = libc.mmap(None, num_bytes, _PROT_NONE, hidden, -1, 0)
    return None if address == _FAILED else address


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
        self._libc = _c_library()
        self._starts: list = []
        self._sizes = [a.get("pages", (0, 0))[1] for a in arguments]
        for i, a in enumerate(arguments):
            is_output = i >= len(arguments) - num_outputs
            self._starts.append(self._map(fd, *a["pages"], writable=is_output) if "pages" in a else 0)

    def _map(self, fd: int, offset: int, num_bytes: int, *, writable: bool) -> int:
        around = _reserve(self._libc, num_bytes + 2 * _GUARD_BYTES)
        allowed = _PROT_READ | (_PROT_WRITE if writable else 0)
        if around is not None:
            start = around + _GUARD_BYTES
            if self._libc.mmap(start, num_bytes, allowed, _MAP_SHARED | _MAP_FIXED, fd, offset) == start:
                return start
        raise OSError(ctypes.get_errno(), "no address space for guarded tensors")

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


def _dynamic(library: ctypes.CDLL) -> tuple[int, dict]:
    """Where a library is mapped, and its dynamic section. Raises OSError, AttributeError."""
    libc = ctypes.CDLL(None)
    found = ctypes.c_void_p()
    if libc.dlinfo(ctypes.c_void_p(library._handle), _RTLD_DI_LINKMAP, ctypes.byref(found)) or not found.value:
        raise OSError("no link map")
    base, _, section = struct.unpack("QQQ", ctypes.string_at(found.value, 24))
    tags: dict = {}
    while True:
        tag, value = struct.unpack("qQ", ctypes.string_at(section, 16))
        if tag == 0:
            return base, tags
        tags[tag] = value
        section += 16


def places(library: ctypes.CDLL, names: tuple) -> dict:
    """By name, where the loader has put the addresses of functions that a library calls."""
    base, tags = _dynamic(library)
    found: dict = {}
    for start, size in ((tags.get(_CALLS), tags.get(_CALLS_BYTES)), (tags.get(_DATA), tags.get(_DATA_BYTES))):
        for at in range(start or 0, (start or 0) + (size or 0), _PLACE_BYTES):
            offset, info = struct.unpack("QQ", ctypes.string_at(at, 16))
            symbol = info >> 32
            if not symbol:
                continue
            (name,) = struct.unpack("I", ctypes.string_at(tags[_SYMBOLS] + symbol * _SYMBOL_BYTES, 4))
            text = ctypes.string_at(tags[_NAMES] + name).decode()
            if text in names:
                found.setdefault(text, []).append(base + offset)
    return found


class TorchMemory:
    """While it is installed each tensor that PyTorch makes has protected pages on both sides, and bands up to these.

    PyTorch takes all memory of CPU tensors from one library, ``libc10.so``, by ``posix_memalign``, and gives it back by
    ``free``. Where the loader has put the addresses of these two, ours are put instead. A loader that does otherwise is
    left alone, and nothing is found out.
    """

    def __init__(self, libc10: str) -> None:
        """``libc10``: path of the library, which is loaded."""
        self._libc = _c_library()
        self._as_always = _Allocate(ctypes.cast(self._libc.posix_memalign, ctypes.c_void_p).value)
        self._give_back = _Free(ctypes.cast(self._libc.free, ctypes.c_void_p).value)
        self._allocate, self._free = _Allocate(self._on_allocate), _Free(self._on_free)
        self._live: dict = {}
        """By address: size, where its pages start, their bytes."""
        self._at_end = True
        self.harm: dict | None = None
        """The first band that was written to: bytes of the tensor, and where in it that was."""
        try:
            self._places = places(ctypes.CDLL(libc10, mode=_RTLD_NOLOAD), ("posix_memalign", "free"))
        except (OSError, AttributeError, struct.error):
            self._places = {}
        self.works = len(self._places) == 2

    def install(self, *, at_end: bool) -> None:
        """``at_end``: tensors end where a page does, as far as their alignment allows; else they start there."""
        if self.works:
            self._at_end = at_end
            self._put("free", self._free)
            self._put("posix_memalign", self._allocate)

    def remove(self) -> None:
        """Tensors are made as always; what is left is looked at."""
        if self.works:
            self._put("posix_memalign", self._as_always)
            for address in list(self._live):
                self._look(address)
            if not self._live:  # what a module keeps is given back later
                self._put("free", self._give_back)

    def _put(self, name: str, function) -> None:
        for place in self._places[name]:
            page = place - place % _PAGE
            self._libc.mprotect(page, _PAGE, _PROT_READ | _PROT_WRITE)  # often read only once a library is loaded
            ctypes.c_void_p.from_address(place).value = ctypes.cast(function, ctypes.c_void_p).value

    def _on_allocate(self, out: int, alignment: int, size: int) -> int:
        if not size or alignment > _PAGE or len(self._live) >= _MOST_LIVE:
            return self._as_always(out, alignment, size)
        held = -(-size // _PAGE) * _PAGE
        around = _reserve(self._libc, held + 2 * _TORCH_GUARD_BYTES)
        if around is None:
            return self._as_always(out, alignment, size)
        pages = around + _TORCH_GUARD_BYTES
        if self._libc.mprotect(pages, held, _PROT_READ | _PROT_WRITE):
            self._libc.munmap(around, held + 2 * _TORCH_GUARD_BYTES)
            return self._as_always(out, alignment, size)
        lead = (held - size) // alignment * alignment if self._at_end else 0
        ctypes.memset(pages, _PATTERN, lead)
        ctypes.memset(pages + lead + size, _PATTERN, held - lead - size)
        self._live[pages + lead] = (size, pages, held)
        ctypes.c_void_p.from_address(out).value = pages + lead
        return 0

    def _on_free(self, address: int | None) -> None:
        if address not in self._live:
            self._give_back(address)
            return
        self._look(address)
        _, pages, held = self._live.pop(address)
        self._libc.munmap(pages - _TORCH_GUARD_BYTES, held + 2 * _TORCH_GUARD_BYTES)

    def _look(self, address: int) -> None:
        size, pages, held = self._live[address]
        lead = address - pages
        before = ctypes.string_at(pages, lead).rstrip(bytes([_PATTERN]))
        behind = ctypes.string_at(address + size, held - lead - size)
        past = len(behind) - len(behind.lstrip(bytes([_PATTERN])))
        if self.harm is None and before:
            self.harm = {"own": size, "bytes": len(before) - 1 - lead, "write": True}
        if self.harm is None and past < len(behind):
            self.harm = {"own": size, "bytes": size + past, "write": True}

    def place(self, address: int) -> dict:
        """Which tensor an address is beside; empty where it is none."""
        for start, (size, pages, held) in list(self._live.items()):
            if pages - _TORCH_GUARD_BYTES <= address < pages + held + _TORCH_GUARD_BYTES:
                return {"own": size, "bytes": address - start}
        return {}
