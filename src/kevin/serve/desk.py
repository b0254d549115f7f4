"""Which pair is judged when: the store first, equal pairs once, a bound on what is waited for; and what is counted."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from kevin.api.answering import MAX_IN_FLIGHT
from kevin.api.engine import Engine
from kevin.core.errors import KevinError
from kevin.core.types import Kernel, Outcome, Task, Verdict
from kevin.serve.messages import Refusal, answer_of, refusal_of
from kevin.serve.settings import ServeSettings

log = logging.getLogger(__name__)

Pair = tuple[Task, Kernel]

_REMEMBERED = 20_000
"""Answers kept in memory; a few kilobytes each."""
_FIRST_GUESS_S = 2.0
_WATCH_S = 5.0
_SECONDS = (0.1, 0.5, 1, 2, 5, 10, 20, 60, 120, 300)


class Metrics:
    """Of one server; two in a process do not meet."""

    def __init__(self) -> None:
        self._registry = here = CollectorRegistry(auto_describe=True)
        self.requests = Counter("kevin_requests", "Requests by route and status", ("route", "status"), registry=here)
        self.verdicts = Counter("kevin_verdicts", "Pairs answered", ("outcome", "source"), registry=here)
        self.failures = Counter("kevin_failures", "Pairs that got no verdict", ("code",), registry=here)
        self.open_pairs = Gauge("kevin_open_pairs", "Pairs waited for, those in work among them", registry=here)
        self.running_pairs = Gauge("kevin_running_pairs", "Pairs in work", registry=here)
        self.abandoned = Counter("kevin_abandoned_pairs", "Pairs whose clients went away before work", registry=here)
        self.seconds = Histogram("kevin_judge_seconds", "Wall time of a pair in work", buckets=_SECONDS, registry=here)

    def text(self) -> bytes:
        """In Prometheus' text format."""
        return generate_latest(self._registry)


class _Job:
    """One pair that is waited for, by any number of requests."""

    def __init__(self, task: asyncio.Task[str]) -> None:
        self.task = task
        self.num_waiting = 0
        self.is_running = False


class Desk:
    """All methods belong to one event loop."""

    def __init__(self, settings: ServeSettings) -> None:
        self._settings, self.metrics = settings, Metrics()
        self._engine = Engine(
            settings.protocol,
            settings.pool,
            store=settings.store,
            reference_timeout_s=settings.reference_timeout_s,
        )
        self._answers: OrderedDict[str, tuple[str, str]] = OrderedDict()
        """Key -> outcome and answer, those used last at the end."""
        self._jobs: dict[str, _Job] = {}
        self._slots = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._seconds_a_pair = _FIRST_GUESS_S
        self._watch: asyncio.Task[None] | None = None
        self.is_stopping = False
        self.device_name = ""

    async def start(self) -> None:
        """Raises HarnessError where the judge cannot start."""
        self.device_name = await asyncio.to_thread(self._engine.start)
        self._watch = asyncio.create_task(self._keep_alive())

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(_WATCH_S)
            if not self._engine.is_well:
                log.error("kevin: the judge's process was lost; starting it again")
                with suppress(KevinError):  # tried again
                    await asyncio.to_thread(self._engine.start)

    @property
    def is_well(self) -> bool:
        return self._engine.is_well and not self.is_stopping

    @property
    def num_open(self) -> int:
        return len(self._jobs)

    async def stop(self) -> None:
        """Turn away what is not in work yet; what is in work may still be waited for."""
        self.is_stopping = True
        for job in list(self._jobs.values()):
            if not job.is_running:
                job.task.cancel()

    async def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        await asyncio.to_thread(self._engine.close)

    async def answers(self, pairs: Sequence[Pair]) -> list[str | Refusal]:
        """For each pair the JSON of its verdict, or why it has none, when the last of them is known.

        Raises:
            Refusal: nothing of it was begun: too much is waited for already, or the server stops.
        """
        for task, _ in pairs:
            self._require_allowed(task)
        keys = [self._engine.key(task, kernel) for task, kernel in pairs]
        found: dict[str, str | Refusal] = {}
        missing: dict[str, Pair] = {}
        for key, pair in zip(keys, pairs, strict=True):
            if key in found or key in missing:
                continue
            known = self._known(key)
            if known is None:
                missing[key] = pair
            else:
                found[key] = known
        if missing:
            self._require_room(missing)
            jobs = {key: self._job(key, pair) for key, pair in missing.items()}
            found |= await self._wait(jobs)
        return [found[key] for key in keys]

    def no_kernel(self, task: Task, problem: str) -> str:
        """The JSON of the verdict on an answer without a kernel. Raises Refusal for a task that is not judged."""
        self._require_allowed(task)
        protocol = self._settings.protocol
        kernel = Kernel(dialect="c_abi", language=protocol.language, source="")
        verdict = Verdict(
            key=self._engine.key(task, kernel),
            task_digest=task.digest,
            kernel_digest=kernel.digest,
            protocol_digest=protocol.digest,
            device_name=self.device_name,
            outcome=Outcome.PARSE_ERROR,
            reason="no_kernel_found",
            message=problem,
        )
        self.metrics.verdicts.labels(str(verdict.outcome), "answer").inc()
        return answer_of(verdict, self._settings.reward)

    def _require_allowed(self, task: Task) -> None:
        allowed = self._settings.references
        if allowed is not None and task.digest not in allowed:
            raise Refusal(403, "unknown_reference", "this server judges the references of its own folder only")

    def _known(self, key: str) -> str | Refusal | None:
        """From memory, or from the store. A damaged file of the store is told of."""
        if (kept := self._answers.get(key)) is None:
            try:
                verdict = self._engine.stored(key)
            except KevinError as e:
                return Refusal(500, "damaged_store", str(e))
            if verdict is None:
                return None
            kept = self._remember(key, verdict)
        self._answers.move_to_end(key)
        self.metrics.verdicts.labels(kept[0], "store").inc()
        return kept[1]

    def _remember(self, key: str, verdict: Verdict) -> tuple[str, str]:
        kept = self._answers[key] = (str(verdict.outcome), answer_of(verdict, self._settings.reward))
        while len(self._answers) > _REMEMBERED:
            self._answers.popitem(last=False)
        return kept

    def _require_room(self, missing: dict[str, Pair]) -> None:
        if self.is_stopping:
            raise Refusal(503, "stopping", "the server stops; ask again when it is back", retry_after_s=10)
        room = self._settings.max_pairs
        num_new = len(missing.keys() - self._jobs.keys())
        if num_new > room:
            raise Refusal(413, "batch_too_large", f"{num_new} pairs need judging, and {room} may be waited for at once")
        if len(self._jobs) + num_new > room:
            wait_s = len(self._jobs) * self._seconds_a_pair / 2
            raise Refusal(
                429,
                "too_many_pairs",
                f"{len(self._jobs)} of at most {room} pairs are waited for: ask again later",
                retry_after_s=max(1, min(60, math.ceil(wait_s))),
            )

    def _job(self, key: str, pair: Pair) -> _Job:
        job = self._jobs.get(key)
        if job is None:
            job = self._jobs[key] = _Job(asyncio.create_task(self._judge(key, pair)))
            self.metrics.open_pairs.set(len(self._jobs))
        return job

    async def _wait(self, jobs: dict[str, _Job]) -> dict[str, str | Refusal]:
        """A request that is cancelled, its client gone, takes along what nobody else waits for and is not in work."""
        for job in jobs.values():
            job.num_waiting += 1
        try:
            await asyncio.wait([job.task for job in jobs.values()])
        finally:
            for job in jobs.values():
                job.num_waiting -= 1
                if not (job.num_waiting or job.is_running or job.task.done()):
                    job.task.cancel()
                    self.metrics.abandoned.inc()
        return {key: _outcome(job.task) for key, job in jobs.items()}

    async def _judge(self, key: str, pair: Pair) -> str:
        """Raises Refusal. Once it has begun it goes on to its end, whoever waits: its verdict is then in the store."""
        try:
            async with self._slots:
                self._jobs[key].is_running = True
                with self.metrics.running_pairs.track_inprogress(), self.metrics.seconds.time():
                    return await self._verdict(key, pair)
        finally:
            del self._jobs[key]
            self.metrics.open_pairs.set(len(self._jobs))

    async def _verdict(self, key: str, pair: Pair) -> str:
        start = time.perf_counter()
        try:
            future = await asyncio.to_thread(self._engine.submit, *pair)
            verdict = await asyncio.wrap_future(future)
        except KevinError as e:
            refusal = refusal_of(e)
            self.metrics.failures.labels(refusal.code).inc()
            raise refusal from None
        outcome, answer = self._remember(key, verdict)
        self.metrics.verdicts.labels(outcome, "judged").inc()
        share = (time.perf_counter() - start) / min(MAX_IN_FLIGHT, max(1, len(self._jobs)))
        self._seconds_a_pair += 0.1 * (share - self._seconds_a_pair)
        return answer


def _outcome(task: asyncio.Task[str]) -> str | Refusal:
    if task.cancelled():
        return Refusal(503, "stopping", "the server stops; ask again when it is back", retry_after_s=10)
    error = task.exception()
    if error is None:
        return task.result()
    if isinstance(error, Refusal):
        return error
    log.error("kevin: internal error, %s: %s", type(error).__name__, error, exc_info=error)
    return Refusal(500, "internal_error", f"{type(error).__name__}: {error}")
