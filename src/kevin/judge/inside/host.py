"""The host's caches: emptied before each timed call, as the L2 of a GPU is. Standard library only.

What a call finds in the caches otherwise depends on what ran before it and on where the allocator put its result, which
is worth a fifth of the time of a call whose tensors nearly fit.
"""

import ctypes
import mmap
import os
import time

_DEFAULT_BYTES, _MAX_BYTES = 32 << 20, 96 << 20
_SHARE = 1.25
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def last_level_bytes() -> int:
    """Size of the largest cache as the kernel reports it; a usual one where it does not."""
    folder = "/sys/devices/system/cpu/cpu0/cache"
    sizes = []
    try:
        for index in os.listdir(folder):  # noqa: PTH208
            if index.startswith("index"):
                with open(f"{folder}/{index}/size") as f:  # noqa: PTH123
                    text = f.read().strip()
                sizes.append(int(text[:-1]) * _UNITS[text[-1]])
    except (OSError, ValueError, KeyError, IndexError):
        return _DEFAULT_BYTES
    return max(sizes, default=_DEFAULT_BYTES)


class CacheFlush:
    """Reads through more memory than the caches hold. Call it before each timed call."""

    def __init__(self, cache_bytes: int) -> None:
        self._half = min(int(_SHARE * cache_bytes), _MAX_BYTES) // 2 // mmap.PAGESIZE * mmap.PAGESIZE
        self._memory = mmap.mmap(-1, 2 * self._half)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            self._memory.madvise(mmap.MADV_HUGEPAGE)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        ctypes.memset(self._address, 1, 2 * self._half)  # untouched pages would all be one page of zeros
        self._compare = ctypes.CDLL(None).memcmp
        self._compare.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)

    def __call__(self) -> None:
        self._compare(self._address, self._address + self._half, self._half)


class ColdClock:
    """Wall nanoseconds of calls that return when their work is done, each with emptied caches."""

    def __init__(self, cache_bytes: int) -> None:
        self._flush = CacheFlush(cache_bytes)

    def __call__(self, call) -> int:
        self._flush()
        start = time.perf_counter_ns()
        call()
        return time.perf_counter_ns() - start
