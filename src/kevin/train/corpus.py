"""What a pretrained model learns from at school: conversations of the kernel writer, written beside training.

Chunk c of the corpus follows from the study's seed and c alone, whichever process writes it. No torch is imported here:
every writing process imports this module.
"""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from itertools import count
from types import TracebackType
from typing import Self

from kevin.core.config import Study
from kevin.core.errors import HarnessError
from kevin.core.types import Task, digest
from kevin.tasks.build import unseen_sequences
from kevin.tasks.catalog import catalog
from kevin.tasks.compose import compose
from kevin.tasks.extended import catalog_extended, compose_general
from kevin.tasks.kernelbench_ops import kernelbench_sequences
from kevin.tasks.ops import sequence
from kevin.train.families import families
from kevin.writer.school import school_transcripts
from kevin.writer.transcripts import Transcript

CHUNK = 16
"""Conversations that are written in one piece."""


def school_tasks(study: Study) -> list[Task]:
    """Single operators, of the catalog and of the whole inventory, and composed tasks, but for those that are like an
    evaluated one or KernelBench's.

    Raises:
        DataError, TaskError: as `kevin.tasks.build.unseen_sequences`.
    """
    school = study.base_model.school_training
    evaluated = {families(operators) for operators in unseen_sequences(study, levels=(2,))}
    evaluated |= {families(operators) for operators in kernelbench_sequences()}
    size, seed = study.tasks.size, _seed(study, "tasks")
    single = [*catalog(size), *catalog_extended(size, school.num_shapes, seed)]
    composed = [*compose(school.num_composed, seed, size), *compose_general(school.num_general, seed, size)]
    return [*single, *(t for t in composed if families(sequence(t.ops)) not in evaluated)]


def school_corpus(study: Study, tasks: list[Task], chunk: int, *, held_out: bool = False) -> Iterator[Transcript]:
    """The `CHUNK` conversations of number ``chunk``; held-out ones are in styles that are never trained on."""
    seed = _seed(study, "held out" if held_out else "trained on", str(chunk))
    mistakes = study.base_model.school_training.mistakes
    return school_transcripts(tasks, study.language, CHUNK, seed, held_out_styles=held_out, mistakes=mistakes)


def _seed(study: Study, *parts: str) -> int:
    return int(digest("school", str(study.seed), *parts)[:8], 16)


class Writers:
    """Processes that write the corpus; a context manager. They end with the process that made them."""

    def __init__(self, study: Study, tasks: list[Task], num_workers: int) -> None:
        self._ahead = 2 * num_workers
        self._pool = ProcessPoolExecutor(
            num_workers,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_set_up,
            initargs=(study, tasks),
        )

    def chunks(self, first: int = 0, *, held_out: bool = False) -> Iterator[list[Transcript]]:
        """Chunks in order, without end, from number ``first`` on; some are written ahead.

        Raises:
            HarnessError: a writing process was killed.
        """
        waiting: deque[Future[list[Transcript]]] = deque()
        try:
            for chunk in count(first):
                waiting.append(self._pool.submit(_write, chunk, held_out))
                if len(waiting) > self._ahead:
                    yield waiting.popleft().result()
        except BrokenExecutor:
            raise HarnessError(
                "a process that writes the school's corpus was ended from outside (memory may have run out); lower "
                "base_model.school_training.num_workers, and start again: training goes on from its last checkpoint"
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


_given: tuple[Study, list[Task]]
"""Of a writing process."""


def _set_up(study: Study, tasks: list[Task]) -> None:
    global _given  # noqa: PLW0603
    _given = (study, tasks)


def _write(chunk: int, held_out: bool) -> list[Transcript]:
    study, tasks = _given
    return list(school_corpus(study, tasks, chunk, held_out=held_out))
