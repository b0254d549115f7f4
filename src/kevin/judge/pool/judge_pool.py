"""Many kernels at once on dask.distributed: compile tasks on cores, one exclusive lease a device.

Locally two kinds of workers are started: a builder with one slot a core, and one process a device that owns the trusted
references. On a GPU that process has threads, whose candidates' cells start while one of them is measured. On a cluster
the same graph runs on workers that announce the resources ``build`` and ``device``. A worker that dies is restarted and
its task repeated; what still fails is a HarnessError in place of a verdict, never a score.
"""

from __future__ import annotations

import logging
import math
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from kevin.core.config import JudgePoolConfig
from kevin.core.errors import HarnessError, KevinError
from kevin.core.files import DISK_FULL
from kevin.core.limits import require_limits
from kevin.core.protocol import JudgeProtocol
from kevin.core.provenance import device_name, nvidia_gpus
from kevin.core.scratch import scratch_folder
from kevin.core.types import Dialect, Kernel, Task, Verdict
from kevin.judge.compile.native import Build
from kevin.judge.evaluate import build_verdict, screen_stage
from kevin.judge.pool.cluster import connect, worker_device_name
from kevin.judge.pool.worker import (
    build_on_worker,
    expect_on_device,
    limit_devices,
    rest_devices,
    run_on_device,
    visible_gpu,
    warm_up_device,
)
from kevin.judge.sandbox.isolation import HINTS
from kevin.judge.store import VerdictStore, verdict_key

log = logging.getLogger(__name__)

MAX_RETRIES = 2
"""How often a harness failure is tried again; a candidate's failure never is."""
WAITING_CELLS = 32
"""On a GPU: sandboxes, each with a context of half a gigabyte, that may wait for the kernels that a model is writing;
never more than a tenth of the memory holds."""


def isolation_environment(config: JudgePoolConfig) -> dict[str, str]:
    """What tells a worker which isolation is wanted; nothing where the configuration leaves it open."""
    environment = {} if config.isolation == "auto" else {"KEVIN_ISOLATION": config.isolation}
    return environment | ({"KEVIN_JUDGE_IMAGE": str(Path(config.image).resolve())} if config.image else {})


def warn_of_sharing(gpus: Sequence[str]) -> None:
    """``gpus``: the one of each process that judges here."""
    num_gpus = len(set(gpus))
    if num_gpus < len(gpus):
        log.warning(
            "pool.device_workers: %d processes judge on %d GPU%s. Those that share one take each other's memory: tasks "
            "of gigabytes take longer, or get no verdict",
            len(gpus),
            num_gpus,
            "" if num_gpus == 1 else "s",
        )


class JudgePool:
    """Judges batches through a store. Workers start with the first kernel that the store does not know.

    Use as a context manager: leaving stops every worker and, with them, every candidate.
    """

    def __init__(self, protocol: JudgeProtocol, store_dir: Path, config: JudgePoolConfig | None = None) -> None:
        require_limits()
        self.protocol = protocol
        self.config = config or JudgePoolConfig()
        self.store = VerdictStore(store_dir)
        self._folders = ExitStack()
        self._store_dir = store_dir.resolve()  # sandboxes need absolute paths
        self._builds = self._store_dir
        """Of this pool alone, once it is started; on the store's drive, as builders may be on other nodes."""
        self._cluster: Any = None
        self._client: Any = None
        self.device_cores: list[int] = []  # of a CPU, once it is started
        self._is_backward = True  # every other batch: it begins with tasks of the last one that devices still hold
        self._ahead: dict[str, Any] = {}
        """Builds that were begun before their kernels are judged, by the verdict's key."""
        self._warming: list[Any] = []
        self._batch = 1
        """What is judged up to the next `rest`."""
        self._expecting: list[Any] = []
        """What the devices were last asked to make ready; dask drops what nobody holds and has not begun."""
        is_here = self.config.scheduler is None  # else the nodes behind it judge
        self.device_name = device_name(protocol.device) if is_here else worker_device_name(self.start(), protocol)

    def __enter__(self) -> JudgePool:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
        if self._cluster is not None:
            self._cluster.close(timeout=10)
            self._cluster = None
        self._folders.close()

    def start(self) -> Any:
        """The dask client, with its workers started. Called on demand; call it early to overlap the start-up."""
        if self._client is None:
            import dask
            from distributed import Client

            dask.config.set(
                {
                    "distributed.worker.daemon": False,
                    "distributed.scheduler.allowed-failures": MAX_RETRIES,
                    "distributed.comm.timeouts.connect": "60s",
                    "distributed.admin.tick.limit": "60s",
                    "distributed.worker.multiprocessing-method": "spawn",
                }
            )
            for name in ("distributed", "distributed.nanny", "distributed.worker", "distributed.scheduler"):
                logging.getLogger(name).setLevel(logging.CRITICAL)
            self._builds = self._folders.enter_context(scratch_folder("pool-", self._store_dir / "builds"))
            address = self.config.scheduler
            if address is None:
                self._cluster = self._local_cluster()
                address = self._cluster
            self._client = connect(address) if isinstance(address, str) else Client(address, set_as_default=False)
        return self._client

    def warm_up(self) -> Any:
        """`start`, with every local device opened beside whatever comes first: a model's import, or the builds."""
        client = self.start()
        if not self._warming:
            workers = range(self.config.device_workers)
            self._warming = [
                client.submit(warm_up_device, self.protocol, pure=False, resources={"device": 1}) for _ in workers
            ]
        return client

    def rest(self) -> None:
        """Between two batches: give back the devices' memory, which a model on the same GPU may need.

        Workers of a cluster keep theirs.
        """
        if self._cluster is not None and self._client is not None:
            self._expecting = []
            self._client.run(rest_devices, self._batch)
            self._batch += 1

    def expect(self, tasks: Sequence[Task], dialect: Dialect, num_kernels: int) -> None:
        """Begin to work out what ``num_kernels`` for ``tasks`` will be judged against, until the next `rest`.

        Every local device does, as each may get any kernel; workers of a cluster, which are others' too, do not. On a
        GPU the kernels' processes are started too.
        """
        if self.config.scheduler is not None:
            return
        client = self.warm_up()
        self._expecting = [
            client.submit(
                expect_on_device,
                sorted(tasks, key=lambda task: task.id),
                math.ceil(num_kernels / self.config.device_workers),
                WAITING_CELLS,
                self.protocol,
                dialect,
                self._batch,
                pure=False,
                resources={"device": 1},
                workers=[f"device-{i}"],
            )
            for i in range(self.config.device_workers)
        ]

    def all_written(self, pairs: Sequence[tuple[Task, Kernel]]) -> None:
        """These are the kernels that `expect` announced; the devices learn how many of them may come to them."""
        if self._cluster is None or self._client is None:
            return
        keys = {verdict_key(task, kernel, self.protocol, self.device_name) for task, kernel in pairs}
        num = sum(self._may_run(key) for key in keys)
        self._client.run(limit_devices, math.ceil(num / self.config.device_workers))

    def _may_run(self, key: str) -> bool:
        """Whether it is neither known nor known not to compile."""
        if (build := self._ahead.get(key)) is None:
            return self.store.get(key) is None
        return build.status != "finished" or build.result().path is not None

    def build_ahead(self, task: Task, kernel: Kernel) -> None:
        """Begin to compile what `judge` will be asked for; the device is left alone. Costs what is not asked for."""
        key = verdict_key(task, kernel, self.protocol, self.device_name)
        if key in self._ahead or self.store.get(key) is not None:
            return
        if screen_stage(task, kernel, self.protocol, self.device_name)[1] is None:
            self._ahead[key] = self._submit_build(self.start(), key, task, kernel)

    def _build_folder(self, key: str) -> Path:
        """A verdict's own: the same kernel may be judged for another task at the same time, and outlast it there."""
        return self._builds / key[:20]

    def _submit_build(self, client: Any, key: str, task: Task, kernel: Kernel, priority: int = 0) -> Any:
        return client.submit(
            build_on_worker,
            task,
            kernel,
            self.protocol,
            self._build_folder(key),
            self.device_cores,
            key=f"build-{key}",
            resources={"build": 1},
            retries=MAX_RETRIES,
            priority=priority,
        )

    def _local_cluster(self) -> Any:
        import dask
        from distributed import Nanny, Scheduler, SpecCluster

        cores = sorted(os.sched_getaffinity(0))
        if self.protocol.device == "cpu":
            self.device_cores = cores[-self.protocol.num_threads * self.config.device_workers :]
        # workers of a GPU mostly wait for it, those of a CPU need cores to themselves
        num_builders = max(1, len(cores) - len(self.device_cores))
        common: dict[str, Any] = {
            "memory_limit": 0,
            "host": "127.0.0.1",
            "env": {"OMP_NUM_THREADS": "1", HINTS: "no", **isolation_environment(self.config)},
            "silence_logs": logging.CRITICAL,  # what fails there is raised here
        }
        workers: dict[Any, Any] = {
            "builder": {
                "cls": Nanny,
                "options": {**common, "nthreads": num_builders, "resources": {"build": num_builders}},
            }
        }
        threads, shown = 1, {}
        if self.protocol.device == "cuda":
            threads = self.config.kernels_in_flight
            shown = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, range(len(nvidia_gpus())))), **os.environ}
        seen = [visible_gpu(shown, i, self.config.gpus) for i in range(self.config.device_workers)]
        warn_of_sharing([gpu["CUDA_VISIBLE_DEVICES"] for gpu in seen if gpu])
        for i in range(self.config.device_workers):
            env = {**common["env"], **seen[i]} | ({HINTS: ""} if i == 0 else {})
            workers[f"device-{i}"] = {
                "cls": Nanny,
                "options": {**common, "env": env, "nthreads": threads, "resources": {"device": threads}},
            }
        scratch = self._folders.enter_context(scratch_folder("kevin-pool-"))
        dask.config.set({"temporary-directory": str(scratch)})
        options = {"host": "127.0.0.1", "port": 0, "dashboard": False, "dashboard_address": "127.0.0.1:0"}
        return SpecCluster(
            workers=workers, scheduler={"cls": Scheduler, "options": options}, silence_logs=logging.CRITICAL
        )

    def judge(
        self,
        pairs: Sequence[tuple[Task, Kernel]],
        on_verdict: Callable[[int, Verdict | HarnessError], None] | None = None,
        on_new: Callable[[Verdict], None] | None = None,
    ) -> list[Verdict | HarnessError]:
        """Judge every pair; equal pairs once, known ones not at all. Same order as ``pairs``.

        Args:
            on_verdict: called with a pair's index as soon as its result is known (for a progress bar).
            on_new: called with each verdict that the store did not have.

        Raises:
            TaskError: a reference that does not run. Everything judged so far is in the store.
        """
        results: list[Verdict | HarnessError | None] = [None] * len(pairs)
        waiting: dict[str, list[int]] = {}
        for i, (task, kernel) in enumerate(pairs):
            waiting.setdefault(verdict_key(task, kernel, self.protocol, self.device_name), []).append(i)

        def settle(key: str, result: Verdict | HarnessError, *, is_known: bool = False) -> None:
            if isinstance(result, Verdict) and not is_known:
                self.store.put(result)
                if on_new is not None:
                    on_new(result)
            for i in waiting.pop(key):
                results[i] = result
                if on_verdict is not None:
                    on_verdict(i, result)

        todo: list[tuple[str, tuple[str, ...]]] = []
        for key in list(waiting):
            task, kernel = pairs[waiting[key][0]]
            if (known := self.store.get(key)) is not None:
                settle(key, known, is_known=True)
                continue
            flags, refused = screen_stage(task, kernel, self.protocol, self.device_name)
            if refused is not None:
                settle(key, refused)
            else:
                todo.append((key, flags))
        if todo:
            first = {key: pairs[indices[0]] for key, indices in waiting.items()}
            self._is_backward = not self._is_backward
            todo.sort(key=lambda kf: first[kf[0]][0].id, reverse=self._is_backward)
            self._schedule(todo, first, settle)
        return [r if r is not None else HarnessError("the judge returned without a result") for r in results]

    def _schedule(
        self,
        todo: list[tuple[str, tuple[str, ...]]],
        pairs: dict[str, tuple[Task, Kernel]],
        settle: Callable[[str, Verdict | HarnessError], None],
    ) -> None:
        """Submit builds, then runs of what built, and settle every key. Cancels what is left when interrupted."""
        from distributed import as_completed

        client = self.warm_up()
        flags_of = dict(todo)
        futures: dict[Any, tuple[str, str]] = {}
        for rank, (key, _) in enumerate(todo):
            future = self._ahead.pop(key, None) or self._submit_build(client, key, *pairs[key], priority=-rank)
            futures[future] = ("build", key)
        done = as_completed(list(futures), loop=client.loop, raise_errors=False)
        try:
            for future in done:
                stage, key = futures.pop(future)
                found = self._result(future, stage)
                if isinstance(found, Build):
                    build, (task, kernel), flags = found, pairs[key], flags_of[key]
                    found = build_verdict(task, kernel, self.protocol, self.device_name, build, flags)
                    if found is None:
                        judged = (task, kernel, build, self.protocol, key, flags)
                        device = {"device": 1}
                        running = client.submit(
                            run_on_device, *judged, key=f"run-{key}", resources=device, retries=MAX_RETRIES
                        )
                        futures[running] = ("run", key)
                        done.add(running)
                        continue
                shutil.rmtree(self._build_folder(key), ignore_errors=True)
                settle(key, found)
        finally:
            if futures:
                client.cancel(list(futures), force=True)

    @staticmethod
    def _result(future: Any, stage: str) -> Any:
        """What a future holds; a lost worker or a harness failure becomes a HarnessError, a bad task is raised."""
        try:
            return future.result()
        except HarnessError as e:
            return e
        except KevinError:
            raise
        except Exception as e:
            if isinstance(e, OSError) and e.errno in DISK_FULL:  # nothing can be judged then
                raise
            log.error("judging failed in stage %s: %s: %s", stage, type(e).__name__, e)
            log.debug("the worker's traceback", exc_info=True)
            return HarnessError(f"judging failed in stage {stage}: {type(e).__name__}: {e}")
