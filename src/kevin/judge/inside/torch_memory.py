"""What PyTorch allocates on a host during a call, between protected pages: outputs that a module makes, and all else.

Standard library only. PyTorch takes all memory of CPU tensors from one library, ``libc10.so``, by ``posix_memalign``,
and gives it back by ``free``. Where the loader has put the addresses of these two, ours are put instead. A loader that
does otherwise is left alone, and nothing is found out.
"""

import ctypes
import mmap
import struct

_PAGE = mmap.PAGESIZE
_GUARD_BYTES = 16 * _PAGE
_MOST_LIVE = 4096
"""Allocations that are ours at a time; what comes then is as always."""
_PATTERN = 0x5C
_PROT_NONE, _PROT_READ, _PROT_WRITE = 0, 1, 2
_MAP_PRIVATE, _MAP_ANONYMOUS, _MAP_NORESERVE = 2, 0x20, 0x4000
_FAILED = ctypes.c_void_p(-1).value
_RTLD_NOLOAD, _RTLD_DI_LINKMAP = 4, 2
_NAMES, _SYMBOLS, _CALLS, _CALLS_BYTES, _DATA, _DATA_BYTES = 5, 6, 23, 2, 7, 8
"""Tags of a library's dynamic section (``elf.h``): strings, symbols, and places that hold addresses of symbols."""
_SYMBOL_BYTES, _PLACE_BYTES = 24, 24

_Allocate = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
_Free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


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
    """While it is installed each tensor that is made has protected pages before and behind, and bands up to these."""

    def __init__(self, libc10: str) -> None:
        """``libc10``: path of the library, which is loaded."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.mmap.restype = ctypes.c_void_p
        self._libc.mmap.argtypes = (
            ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
        )  # fmt: skip
        self._libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        self._libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
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
        hidden = _MAP_PRIVATE | _MAP_ANONYMOUS | _MAP_NORESERVE
        around = self._libc.mmap(None, held + 2 * _GUARD_BYTES, _PROT_NONE, hidden, -1, 0)
        if around == _FAILED:
            return self._as_always(out, alignment, size)
        pages = around + _GUARD_BYTES
        if self._libc.mprotect(pages, held, _PROT_READ | _PROT_WRITE):
            self._libc.munmap(around, held + 2 * _GUARD_BYTES)
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
        self._libc.munmap(pages - _GUARD_BYTES, held + 2 * _GUARD_BYTES)

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
            if pages - _GUARD_BYTES <= address < pages + held + _GUARD_BYTES:
                return {"own": size, "bytes": address - start}
        return {}
