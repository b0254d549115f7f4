"""The CUDA driver through ctypes: shared device memory, events, and the timed call. Standard library only.

Used on both sides of the wall: the judge allocates memory and exports it as a file descriptor (which crosses process,
user and pid namespaces), a cell imports it. Nothing here knows what is being judged.
"""

import ctypes
import time
from collections.abc import Callable

_PINNED, _POSIX_FD, _ON_DEVICE, _READ_WRITE = 1, 1, 1, 3
_FLUSH_FACTOR = 2
_LEAD_US, _LEAD_FACTOR, _MAX_LEAD_PASSES = 150.0, 3.0, 800
"""Of flushes before a timed call; at most so many as fit into a launch queue (1024) beside a network's launches."""
_L2_CACHE_SIZE = 38
_DISABLE_TIMING = 2


class CudaError(RuntimeError):
    """A driver call failed; ``code`` is its CUresult."""

    def __init__(self, call: str, code: int, text: str) -> None:
        super().__init__(f"{call}: {text} (CUDA error {code})")
        self.code = code


class _Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _AllocFlags(ctypes.Structure):
    _fields_ = (
        ("compression", ctypes.c_ubyte),
        ("rdma", ctypes.c_ubyte),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 4),
    )


class _AllocationProp(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("win32", ctypes.c_void_p),
        ("flags", _AllocFlags),
    )


class _Access(ctypes.Structure):
    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


class DeviceBytes:
    """A raw device pointer in the form that torch wraps without a copy."""

    def __init__(self, pointer: int, num_bytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (num_bytes,),
            "typestr": "|u1",
            "data": (pointer, False),
            "version": 3,
        }


class Gpu:
    """The primary context of device 0 (as CUDA_VISIBLE_DEVICES numbers it) and one stream of this process."""

    def __init__(self) -> None:
        self.lib = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        device = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.device = device.value
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._context = context
        self.make_current()
        stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(stream), 0)
        self.stream = stream
        self.l2_bytes = self.attribute(_L2_CACHE_SIZE)
        self._events = [self._event() for _ in range(2)]
        self._all_done = self._event(_DISABLE_TIMING)
        self._joins = all(hasattr(self.lib, name) for name in ("cuCtxRecordEvent", "cuCtxWaitEvent"))  # CUDA 12.5
        self._flush: ctypes.c_uint64 | None = None
        self._pass_us = 0.0
        self._launch_us = 0.0

    def call(self, name: str, *args: object) -> None:
        code = getattr(self.lib, name)(*args)
        if code != 0:
            text = ctypes.c_char_p()
            self.lib.cuGetErrorString(code, ctypes.byref(text))
            raise CudaError(name, code, (text.value or b"unknown error").decode())

    def make_current(self) -> None:
        """For the calling thread; the one that made this object needs it not."""
        self.call("cuCtxSetCurrent", self._context)

    def attribute(self, number: int) -> int:
        value = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), number, self.device)
        return value.value

    def _event(self, flags: int = 0) -> ctypes.c_void_p:
        event = ctypes.c_void_p()
        self.call("cuEventCreate", ctypes.byref(event), flags)
        return event

    # --- shared memory ---

    def _map(self, handle: ctypes.c_uint64, size: int) -> int:
        pointer = ctypes.c_uint64()
        self.call("cuMemAddressReserve", ctypes.byref(pointer), ctypes.c_size_t(size), ctypes.c_size_t(0),
                  ctypes.c_uint64(0), ctypes.c_ulonglong(0))  # fmt: skip
        self.call("cuMemMap", pointer, ctypes.c_size_t(size), ctypes.c_size_t(0), handle, ctypes.c_ulonglong(0))
        access = _Access(_Location(_ON_DEVICE, self.device), _READ_WRITE)
        self.call("cuMemSetAccess", pointer, ctypes.c_size_t(size), ctypes.byref(access), ctypes.c_size_t(1))
        return pointer.value

    def _rounded(self, num_bytes: int) -> tuple[_AllocationProp, int]:
        """Properties of exportable memory, and ``num_bytes`` in whole pages of it."""
        prop = _AllocationProp(_PINNED, _POSIX_FD, _Location(_ON_DEVICE, self.device), None, _AllocFlags())
        granularity = ctypes.c_size_t()
        self.call("cuMemGetAllocationGranularity", ctypes.byref(granularity), ctypes.byref(prop), 0)
        return prop, -(-num_bytes // granularity.value) * granularity.value

    def allocate_shared(self, num_bytes: int) -> tuple[int, int, int, int]:
        """Device memory that another process can import: (pointer, size in bytes, file descriptor, handle)."""
        prop, size = self._rounded(num_bytes)
        handle = ctypes.c_uint64()
        self.call("cuMemCreate", ctypes.byref(handle), ctypes.c_size_t(size), ctypes.byref(prop), ctypes.c_ulonglong(0))
        pointer = self._map(handle, size)
        fd = ctypes.c_int()
        self.call("cuMemExportToShareableHandle", ctypes.byref(fd), handle, _POSIX_FD, ctypes.c_ulonglong(0))
        return pointer, size, fd.value, handle.value

    def free_shared(self, pointer: int, size: int, handle: int) -> None:
        self.call("cuMemUnmap", ctypes.c_uint64(pointer), ctypes.c_size_t(size))
        self.call("cuMemAddressFree", ctypes.c_uint64(pointer), ctypes.c_size_t(size))
        self.call("cuMemRelease", ctypes.c_uint64(handle))

    def import_shared(self, fd: int, num_bytes: int) -> int:
        """Pointer to memory that another process exported."""
        _, size = self._rounded(num_bytes)
        handle = ctypes.c_uint64()
        self.call("cuMemImportFromShareableHandle", ctypes.byref(handle), ctypes.c_void_p(fd), _POSIX_FD)
        return self._map(handle, size)

    # --- timing ---

    def flush_l2(self, passes: int = 1) -> None:
        """Overwrite twice the L2 cache on the stream, after dropping lines that were asked to persist."""
        if self._flush is None:
            self._flush = ctypes.c_uint64()
            self.call("cuMemAlloc_v2", ctypes.byref(self._flush), ctypes.c_size_t(_FLUSH_FACTOR * self.l2_bytes))
        self.lib.cuCtxResetPersistingL2Cache()
        words = ctypes.c_size_t(_FLUSH_FACTOR * self.l2_bytes // 4)
        for _ in range(passes):
            self.call("cuMemsetD32Async", self._flush, 0, words, self.stream)

    def _elapsed_us(self) -> float:
        """Between the two events, which must have happened."""
        ms = ctypes.c_float()
        self.call("cuEventElapsedTime", ctypes.byref(ms), *self._events)
        return ms.value * 1e3

    def _lead_passes(self) -> int:
        """Flushes that keep the GPU busy until a call's work is enqueued, so that the host's speed is not timed."""
        if self._pass_us == 0.0:
            begin, end = self._events
            self.flush_l2()
            self.call("cuEventRecord", begin, self.stream)
            self.flush_l2(passes=8)
            self.call("cuEventRecord", end, self.stream)
            self.synchronize()
            self._pass_us = max(self._elapsed_us() / 8, 1.0)
        lead_us = _LEAD_US + _LEAD_FACTOR * self._launch_us
        return min(_MAX_LEAD_PASSES, 1 + int(lead_us / self._pass_us))

    def timed(
        self,
        launch: Callable[[], object],
        afterwards: Callable[[], object] | None = None,
        before: Callable[[], object] | None = None,
    ) -> int:
        """Nanoseconds of ``launch`` with a cold L2, by events on the stream that all other streams are joined to.

        No stream begins before the begin event, and the end event waits for all of them. With a driver that cannot do
        this, ``before`` and ``afterwards`` see to it that work on a stream of its own gives a wrong result.

        Args:
            afterwards: enqueued on the stream right behind the end event. A copy of the outputs there shows what was
                done when the clock stopped: work on streams that were not joined is not in it.
            before: enqueued right ahead of the begin event. The last of the inputs arrive there: work on another
                stream that did not wait for this one has not seen them.
        """
        begin, end = self._events
        self.flush_l2(self._lead_passes())
        if before is not None:
            before()
        self._joined(launch, begin, end)
        if afterwards is not None:
            afterwards()
        self.synchronize()
        return int(self._elapsed_us() * 1e3)

    def untimed(self, launch: Callable[[], object]) -> None:
        """The same without a clock, and without waiting for it: what is enqueued next comes behind all of it."""
        self._joined(launch, *self._events)

    def _joined(self, launch: Callable[[], object], begin: ctypes.c_void_p, end: ctypes.c_void_p) -> None:
        self.call("cuEventRecord", begin, self.stream)
        if self._joins:
            self.call("cuCtxWaitEvent", self._context, begin)
        start = time.perf_counter_ns()
        launch()
        self._launch_us = (time.perf_counter_ns() - start) / 1e3
        if self._joins:
            self.call("cuCtxRecordEvent", self._context, self._all_done)
            self.call("cuStreamWaitEvent", self.stream, self._all_done, 0)
        self.call("cuEventRecord", end, self.stream)

    def allocate(self, num_bytes: int) -> int:
        pointer = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(max(num_bytes, 1)))
        return pointer.value

    def fill(self, pointer: int, byte: int, num_bytes: int) -> None:
        self.call(
            "cuMemsetD8Async", ctypes.c_uint64(pointer), ctypes.c_ubyte(byte), ctypes.c_size_t(num_bytes), self.stream
        )

    def copy(self, target: int, source: int, num_bytes: int) -> None:
        self.call("cuMemcpyDtoDAsync_v2", ctypes.c_uint64(target), ctypes.c_uint64(source), ctypes.c_size_t(num_bytes),
                  self.stream)  # fmt: skip

    def synchronize(self) -> None:
        self.call("cuCtxSynchronize")
