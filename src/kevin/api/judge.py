"""``Judge``: kernels judged from a Python program, one by one or as many as there are."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from kevin.api.engine import Engine
from kevin.api.pairs import make_protocol, make_task, text_of
from kevin.core.candidate import DialectChoice, make_kernel
from kevin.core.errors import KevinError
from kevin.core.protocol import JudgeProtocol
from kevin.core.provenance import NO_GPU, may_have_gpu
from kevin.core.types import Device, Kernel, Language, Task, Verdict

if TYPE_CHECKING:
    from kevin.api.pairs import Source
    from kevin.core.config import JudgePoolConfig

log = logging.getLogger(__name__)

API_VERSION = 1
"""Raised when a program that was written for the one before would no longer work; additions do not raise it."""


@dataclass(frozen=True)
class Judged:
    """What became of one pair of `Judge.many`: a verdict, or the error that kept it from one."""

    index: int
    """Of the pair, counted from 0."""
    verdict: Verdict | None
    error: KevinError | None


class Judge:
    """Compiles, checks and times kernels against PyTorch references, each in a sandboxed process of its own.

    ::

        from kevin import Judge

        with Judge(device="cuda") as judge:
            verdict = judge(reference, kernel)
            print(verdict.outcome, verdict.speedup)

    Store, isolation and protocol are those of the command `kevin judge`. Processes start with the first kernel that the
    store does not know, and end with ``close``, at the end of a ``with``, or with this process. May be used by several
    threads at once; after a fork, only by the process that made it.
    """

    def __init__(
        self,
        device: Device | None = None,
        *,
        protocol: JudgeProtocol | None = None,
        pool: JudgePoolConfig | None = None,
        store: str | Path | None = None,
        reference_timeout_s: float = 60.0,
        **settings: Any,
    ) -> None:
        """
        Args:
            device: ``cpu`` or ``cuda``; that of ``protocol``, else the CPU, when None.
            protocol: how kernels are judged; the default one when None.
            pool: how judging is scheduled and isolated: workers, GPUs, containers, a cluster.
            store: folder of verdicts that are kept and reused, shared with any other judge; forgotten when None.
            reference_timeout_s: wall seconds that importing a reference and reading off its shapes may take.
            settings: fields of `JudgeProtocol` that replace those of ``protocol``, e.g. ``num_trials=5, rules=()``; or
                ``tolerance``, for ``atol`` and ``rtol`` alike.

        Raises:
            UsageError: a setting that there is not, or with a value that it cannot have.
        """
        self.protocol = make_protocol(protocol, device=device, **settings)
        is_here = pool is None or pool.scheduler is None
        if self.protocol.device == "cuda" and is_here and not may_have_gpu():
            log.warning("kevin.Judge: %s", NO_GPU)  # raised, as any trouble of a device, with the first kernel
        self._engine = Engine(
            self.protocol,
            pool,
            store=Path(store) if store is not None else None,
            reference_timeout_s=reference_timeout_s,
        )

    @property
    def device_name(self) -> str:
        """Model of the processor or GPU that verdicts are timed on. Raises DeviceError where there is none."""
        return self._engine.device_name

    def __call__(
        self,
        reference: Source | Task,
        kernel: Source | Kernel,
        *,
        dialect: DialectChoice = "auto",
        language: Language | None = None,
    ) -> Verdict:
        """Judge one kernel, and wait for its verdict.

        Args:
            reference: a module in KernelBench's format (``Model``, ``get_inputs``, ``get_init_inputs``): its text, or a
                path. A string without a line break is a path. A `Task` is taken as it is, a `Kernel` likewise.
            kernel: the candidate, likewise: a Python module with ``ModelNew``, or C++ or CUDA with
                ``extern "C" void launch(...)``.
            dialect: ``load_inline`` or ``c_abi``; ``auto`` tells them apart by file name and content.
            language: ``cpp`` or ``cuda``; the device's when None.

        Returns:
            The verdict, whatever it says: a kernel that is refused, does not compile, crashes or is wrong has one too.
            Times are microseconds a call; ``speedup`` is the reference's time over the kernel's, None unless correct.

        Raises:
            TaskError: the reference cannot be used; the text says why.
            UsageError: no such file, or a kernel that does not fit the device.
            HarnessError: the judge could not do its work; no verdict was formed, and trying again may help.
        """
        return self.submit(reference, kernel, dialect=dialect, language=language).result()

    def submit(
        self,
        reference: Source | Task,
        kernel: Source | Kernel,
        *,
        dialect: DialectChoice = "auto",
        language: Language | None = None,
    ) -> Future[Verdict]:
        """As a call, without waiting: a future of the verdict, which raises what a call would."""
        if not isinstance(reference, Task):
            text, name = text_of(reference)
            reference = make_task(text, name)
        if not isinstance(kernel, Kernel):
            source, name = text_of(kernel)
            kernel = make_kernel(source, name, dialect, self.protocol, language)
        return self._engine.submit(reference, kernel)

    def many(
        self,
        pairs: Iterable[tuple[Source | Task, Source | Kernel]],
        *,
        dialect: DialectChoice = "auto",
        language: Language | None = None,
        in_flight: int = 64,
    ) -> Iterator[Judged]:
        """Judge pairs of reference and kernel, and yield each result as it comes, with the pair's index.

        Equal pairs are judged once, those in the store not at all. Pairs are taken from the iterable as there is room
        for them, so it may be endless. An error of one pair is yielded with it, and the others go on.

        Args:
            in_flight: pairs that are taken before the first of them is yielded.
        """
        waiting: dict[Future[Verdict], list[int]] = {}
        left = enumerate(pairs)
        more = True
        while more or waiting:
            while more and sum(map(len, waiting.values())) < in_flight:
                following = next(left, None)
                if following is None:
                    more = False
                    break
                index, (reference, kernel) = following
                try:
                    future = self.submit(reference, kernel, dialect=dialect, language=language)
                except KevinError as e:
                    yield Judged(index, None, e)
                else:
                    waiting.setdefault(future, []).append(index)
            for future in wait(waiting, return_when=FIRST_COMPLETED).done if waiting else ():
                error = future.exception()
                if error is not None and not isinstance(error, KevinError):
                    raise error
                for index in waiting.pop(future):
                    yield Judged(index, None if error else future.result(), error)

    def close(self) -> None:
        """End the judge's processes. What was not judged by then raises HarnessError; may be called twice."""
        self._engine.close()

    def __enter__(self) -> Judge:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()
