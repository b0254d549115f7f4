"""What a pretrained model learns from at school: conversations of the kernel writer, written beside training.

Chunk c of the corpus follows from the study's seed and c alone, whichever process writes it. No torch is imported here:
every writing process imports this module.
"""

from __future__ import annotations

import multiprocessing
import pickle
import random
import tempfile
from collections import deque
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple, Self

from kevin.core.config import Study
from kevin.core.errors import HarnessError
from kevin.core.types import Task, digest
from kevin.tasks.build import unseen_sequences
from kevin.tasks.catalog import catalog, catalog_extended
from kevin.tasks.compose import compose
from kevin.tasks.general import compose_general
from kevin.tasks.kernelbench_ops import kernelbench_sequences
from kevin.tasks.ops import sequence
from kevin.train.families import families
from kevin.writer.first_turns import first_transcripts
from kevin.writer.later_turns import Past, later_transcripts
from kevin.writer.transcripts import Transcript

CHUNK = 16
"""Conversations that are written in one piece."""
NUM_COMPOSED = 250
"""Composed tasks of the corpus in the manner of the study's own."""
NUM_SHAPES = 24
"""Tasks of each single operator of the whole inventory, in other shapes, ranks and dimensions."""

Kind = Literal["trained on", "held out", "held out later"]
"""What a chunk is for: training; or the loss on first, or on later turns, in styles that are never trained on."""
_CHARS_PER_TOKEN = 2.5
"""Of prompts; SmolLM2's tokens of them have about three, and what is too long all the same is left out."""
_PROMPT_SHARE = 0.75
_LOOK_S = 2.0
"""Between looks whether writing processes are there, while one is waited for."""


class Pasts(NamedTuple):
    """What later turns go on from; nothing where all turns are first ones."""

    school: tuple[Past, ...] = ()
    held_out: tuple[Past, ...] = ()


NO_PASTS = Pasts()


def school_tasks(study: Study) -> list[Task]:
    """Single operators, of the catalog and of the whole inventory, and composed tasks, but for those that are like an
    evaluated one or KernelBench's.

    Raises:
        DataError, TaskError: as `kevin.tasks.build.unseen_sequences`.
    """
    evaluated = {families(operators) for operators in unseen_sequences(study, levels=(2,))}
    evaluated |= {families(operators) for operators in kernelbench_sequences()}
    size, seed = study.task_size, _seed(study, "tasks")
    single = [*catalog(size), *catalog_extended(size, NUM_SHAPES, seed)]
    num_general = study.base_model.pretraining.num_general
    composed = [*compose(NUM_COMPOSED, seed, size), *compose_general(num_general, seed, size)]
    return [*single, *(t for t in composed if families(sequence(t.ops)) not in evaluated)]


def school_corpus(
    study: Study, tasks: list[Task], chunk: int, kind: Kind = "trained on", pasts: Pasts = NO_PASTS
) -> Iterator[Transcript]:
    """The `CHUNK` conversations of number ``chunk``; with pasts later turns are among those that are trained on."""
    if kind == "held out later":
        yield from _later(study, pasts.held_out, CHUNK, _seed(study, kind, str(chunk)))
    elif kind == "held out":
        yield from _first(study, tasks, CHUNK, _seed(study, kind, str(chunk)), held_out=True)
    elif not pasts.school:
        yield from _first(study, tasks, CHUNK, _seed(study, kind, str(chunk)))
    else:
        seed = _seed(study, kind, "second school", str(chunk))  # the words of before: the corpus stays what it was
        rng = random.Random(seed)
        is_later = [rng.random() < study.base_model.pretraining.later_share for _ in range(CHUNK)]
        first = _first(study, tasks, CHUNK, seed)
        later = _later(study, pasts.school, CHUNK, seed)
        yield from (next(later if asked else first) for asked in is_later)


def _first(study: Study, tasks: list[Task], num: int, seed: int, *, held_out: bool = False) -> Iterator[Transcript]:
    return first_transcripts(tasks, study.language, num, seed, held_out_styles=held_out)


def _later(study: Study, pasts: tuple[Past, ...], num: int, seed: int) -> Iterator[Transcript]:
    max_prompt_chars = int(_PROMPT_SHARE * study.base_model.max_tokens * _CHARS_PER_TOKEN)
    return later_transcripts(pasts, study.language, num, seed, max_prompt_chars=max_prompt_chars)


def _seed(study: Study, *parts: str) -> int:
    return int(digest("school", str(study.seed), *parts)[:8], 16)


class Writers:
    """Processes that write the corpus; a context manager. They end with the process that made them."""

    def __init__(self, study: Study, tasks: list[Task], num_workers: int, pasts: Pasts = NO_PASTS) -> None:
        self._ahead = 2 * num_workers
        self._folder = tempfile.TemporaryDirectory(prefix="kevin-corpus-")
        given = Path(self._folder.name, "given.pickle")
        given.write_bytes(pickle.dumps((study, tasks, pasts)))  # once; as an argument it would be for each process
        self._pool = ProcessPoolExecutor(
            num_workers,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_set_up,
            initargs=(given,),
        )

    def chunks(self, first: int = 0, kind: Kind = "trained on") -> Iterator[list[Transcript]]:
        """Chunks in order, without end, from number ``first`` on; some are written ahead.

        Raises:
            HarnessError: a writing process was killed.
        """
        waiting: deque[Future[str]] = deque()
        try:
            for chunk in count(first):
                waiting.append(self._pool.submit(_write, chunk, kind))
                if len(waiting) > self._ahead:
                    yield _read(self._finished(waiting.popleft()))
        except BrokenExecutor:
            raise HarnessError(
                "a process that writes the school's corpus was ended from outside (memory may have run out); "
                "start again, on fewer cores if need be (taskset): training goes on from its last checkpoint"
            ) from None

    def _finished(self, chunk: Future[str]) -> str:
        """Raises BrokenExecutor, also where a process ended while ``chunk`` was asked for: the executor forgets it."""
        while True:
            try:
                return chunk.result(timeout=_LOOK_S)
            except TimeoutError:
                self._pool.submit(int)  # refused by an executor that is broken

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)  # a chunk at most, and nothing is written there any more
        self._folder.cleanup()


_given: tuple[Study, list[Task], Pasts]
_folder: Path
"""Of a writing process."""


def _set_up(given: Path) -> None:
    global _folder, _given
    _folder, _given = given.parent, pickle.loads(given.read_bytes())


def _write(chunk: int, kind: Kind) -> str:
    """The path of a file with the chunk.

    The chunk itself is longer than what is written to a pipe at once. Where a process is killed in the middle of that,
    the executor waits for the rest for ever.
    """
    study, tasks, pasts = _given
    with tempfile.NamedTemporaryFile(dir=_folder, suffix=".chunk", delete=False) as file:
        pickle.dump(list(school_corpus(study, tasks, chunk, kind, pasts)), file)
    return file.name


def _read(path: str) -> list[Transcript]:
    written = Path(path)
    chunk: list[Transcript] = pickle.loads(written.read_bytes())
    written.unlink()
    return chunk
