"""The host's caches, emptied before each timed call as the L2 of a GPU is, and its clock. Standard library only.

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
        # private: the kernel gives what is shared no huge pages
        self._memory = mmap.mmap(-1, 2 * self._half, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            self._memory.madvise(mmap.MADV_HUGEPAGE)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        ctypes.memset(self._address, 1, 2 * self._half)  # untouched pages would all be one page of zeros
        self._compare = ctypes.CDLL(None).memcmp
        self._compare.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)

    def __call__(self) -> None:
        self._compare(self._address, self._address + self._half, self._half)


class _Waits:
    """For how long each thread of this process was ready to run and had no core, as the scheduler counts it."""

    def __init__(self, num_threads: int) -> None:
        self._only = -1
        try:
            if num_threads == 1:  # as little as can be done between emptying the caches and the call
                self._only = os.open("/proc/self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return

    def __call__(self) -> dict[str, int]:
        """Nanoseconds by thread; nothing where they are not counted."""
        try:
            if self._only >= 0:
                return {"": int(os.pread(self._only, 64, 0).split()[1])}
            folder = "/proc/self/task"
            return {thread: self._read(f"{folder}/{thread}/schedstat") for thread in os.listdir(folder)}  # noqa: PTH208
        except (OSError, ValueError, IndexError):
            return {}

    @staticmethod
    def _read(path: str) -> int:
        with open(path, "rb", buffering=0) as f:  # noqa: PTH123
            return int(f.read().split()[1])


class ColdClock:
    """Wall nanoseconds of calls that return when their work is done, each with emptied caches where it is ``cold``.

    ``waited_ns``: of the last call, how long one of its threads waited for a core that others used.
    """

    def __init__(self, cache_bytes: int, num_threads: int) -> None:
        self._flush, self._waits = CacheFlush(cache_bytes), _Waits(num_threads)
        self.waited_ns = 0

    def __call__(self, call, cold=True) -> int:
        if cold:
            self._flush()
        looked = time.perf_counter_ns()
        before = self._waits()
        start = time.perf_counter_ns()
        call()
        end = time.perf_counter_ns()
        after = self._waits()
        beside = time.perf_counter_ns() - looked - (end - start)  # it may have waited there, and not in the call
        waited = max((after[thread] - before.get(thread, 0) for thread in after), default=0)
        self.waited_ns = max(0, waited - beside)
        return end - start
