"""What a base model learns from: conversations of the kernel writer, of all of them or in chunks beside the training.

Chunk c of a school's corpus follows from the study's seed and c alone, whichever process writes it. No torch is
imported here: every writing process imports this module.
"""

from __future__ import annotations

import multiprocessing
import os
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
from kevin.core.errors import ConfigError, HarnessError
from kevin.core.types import Task, Transcript, canonical_json, digest
from kevin.tasks.build import build_tasks, evaluated_tasks
from kevin.tasks.catalog import catalog, catalog_extended
from kevin.tasks.compose import compose, compose_general
from kevin.writer.evaluated import Evaluated
from kevin.writer.first_turns import first_transcripts
from kevin.writer.later_turns import Past, later_transcripts
from kevin.writer.plan import Habits
from kevin.writer.transcripts import MAX_TURNS, transcripts

OWN_TASKS = 4
"""How much more often a task of the study is written for than another of the catalog, from scratch."""
FIRST_ANSWERS, LATER_ANSWERS, LAST_ANSWERS = 6, 3, 5
"""Answers to a first turn's prompt; at each later turn where all of them are asked for; at the last turn alone."""
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

    @property
    def identity(self) -> str | None:
        """Digest of all that later turns of the corpus can show; None without any."""
        if not self.school:
            return None
        shown = [
            [past.task.shown.id, past.task.shown.digest, *(a.turn.model_dump(mode="json") for a in past.answers)]
            for past in (*self.school, *self.held_out)
        ]
        return digest("pasts", canonical_json(shown))


NO_PASTS = Pasts()


def scratch_tasks(study: Study) -> list[Task]:
    """The study's own, every split of them, and at a lower share the rest of the catalog.

    The held-out tasks are among them, as a pretrained model will have met any operator: transcripts show right and
    wrong kernels alike, without a preference. What is held out is held out from reinforcement learning.
    """
    own = [task for task, _ in build_tasks(study) if task.origin != "kernelbench"]  # which the writer does not know
    known = {task.id for task in own}
    others = [task for task in catalog(study.task_size) if task.id not in known]
    return [*own * OWN_TASKS, *others]


def scratch_corpus(study: Study) -> Iterator[Transcript]:
    """The transcripts that a model is trained on from scratch.

    Raises:
        ConfigError: a dialect that the kernel writer does not write.
    """
    _check_dialect(study)
    return _scratch_transcripts(study)


def _scratch_transcripts(study: Study) -> Iterator[Transcript]:
    """Makes nothing before the first is asked for: making tasks draws from PyTorch's generator, as the model's first
    weights do afterwards."""
    config, history = study.base_model, study.transcripts_history
    yield from transcripts(
        scratch_tasks(study),
        study.language,
        config.num_transcripts,
        MAX_TURNS,
        study.seed,
        first_answers=FIRST_ANSWERS,
        later_answers=LATER_ANSWERS if history.is_whole else LAST_ANSWERS,
        habits=Habits(**config.writer.model_dump()),
        history=history,
    )


def _check_dialect(study: Study) -> None:
    if study.dialect != "c_abi":
        raise ConfigError("the base model can be trained for dialect c_abi only")


class Lessons(NamedTuple):
    """What pretrained weights are taught."""

    tasks: list[Task]
    evaluated: Evaluated
    """None of the tasks is like one of these, nor may it become so when its sizes are drawn anew."""


def school_tasks(study: Study) -> Lessons:
    """Single operators, of the catalog and of the whole inventory, and composed tasks, but for those that are like an
    evaluated one or a composition of KernelBench's.

    Raises:
        ConfigError, DataError, TaskError: as `kevin.tasks.build.evaluated_tasks`.
    """
    evaluated = Evaluated(evaluated_tasks(study))
    size, seed = study.task_size, _seed(study, "tasks")
    single = [*catalog(size), *catalog_extended(size, NUM_SHAPES, seed)]
    num_general = study.base_model.pretraining.num_general
    composed = [*compose(NUM_COMPOSED, seed, size), *compose_general(num_general, seed, size)]
    return Lessons([t for t in (*single, *composed) if not evaluated.holds(t)], evaluated)


def school_corpus(
    study: Study, lessons: Lessons, chunk: int, kind: Kind = "trained on", pasts: Pasts = NO_PASTS
) -> Iterator[Transcript]:
    """The `CHUNK` conversations of number ``chunk``; with pasts later turns are among those that are trained on."""
    if kind == "held out later":
        yield from _later(study, pasts.held_out, CHUNK, _seed(study, kind, str(chunk)))
    elif kind == "held out":
        yield from _first(study, lessons, CHUNK, _seed(study, kind, str(chunk)), held_out=True)
    elif not pasts.school:
        yield from _first(study, lessons, CHUNK, _seed(study, kind, str(chunk)))
    else:
        seed = _seed(study, kind, "second school", str(chunk))  # the words of before: the corpus stays what it was
        rng = random.Random(seed)
        is_later = [rng.random() < study.base_model.pretraining.later_share for _ in range(CHUNK)]
        first = _first(study, lessons, CHUNK, seed)
        later = _later(study, pasts.school, CHUNK, seed)
        yield from (next(later if asked else first) for asked in is_later)


def _first(study: Study, lessons: Lessons, num: int, seed: int, *, held_out: bool = False) -> Iterator[Transcript]:
    return first_transcripts(
        lessons.tasks, study.language, num, seed, evaluated=lessons.evaluated, held_out_styles=held_out
    )


def _later(study: Study, pasts: tuple[Past, ...], num: int, seed: int) -> Iterator[Transcript]:
    max_prompt_chars = int(_PROMPT_SHARE * study.base_model.max_tokens * _CHARS_PER_TOKEN)
    return later_transcripts(pasts, study.language, num, seed, max_prompt_chars=max_prompt_chars)


def _seed(study: Study, *parts: str) -> int:
    return int(digest("school", str(study.seed), *parts)[:8], 16)


class Writers:
    """Processes that write the corpus; a context manager. They end with the process that made them."""

    def __init__(
        self, study: Study, lessons: Lessons, pasts: Pasts = NO_PASTS, *, num_workers: int | None = None
    ) -> None:
        """``num_workers``: by default one for each core of this process but one.

        Raises:
            ConfigError: a dialect that the kernel writer does not write.
        """
        _check_dialect(study)
        num_workers = num_workers or max(1, len(os.sched_getaffinity(0)) - 1)
        self.identity, self.has_held_out_later = pasts.identity, bool(pasts.held_out)
        self._ahead = 2 * num_workers
        self._folder = tempfile.TemporaryDirectory(prefix="kevin-corpus-")
        given = Path(self._folder.name, "given.pickle")
        given.write_bytes(pickle.dumps((study, lessons, pasts)))  # once; as an argument it would be for each process
        self._pool = ProcessPoolExecutor(
            num_workers,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_set_up,
            initargs=(given,),
        )

    def chunks(self, first: int = 0, kind: Kind = "trained on") -> Iterator[list[Transcript]]:
        """Chunks in order, without end, from conversation number ``first`` on; some are written ahead.

        Raises:
            HarnessError: a writing process was killed.
        """
        waiting: deque[Future[str]] = deque()
        number, skipped = divmod(first, CHUNK)
        try:
            for chunk in count(number):
                waiting.append(self._pool.submit(_write, chunk, kind))
                if len(waiting) > self._ahead:
                    yield _read(self._finished(waiting.popleft()))[skipped:]
                    skipped = 0
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


_given: tuple[Study, Lessons, Pasts]
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
    study, lessons, pasts = _given
    with tempfile.NamedTemporaryFile(dir=_folder, suffix=".chunk", delete=False) as file:
        pickle.dump(list(school_corpus(study, lessons, chunk, kind, pasts)), file)
    return file.name


def _read(path: str) -> list[Transcript]:
    written = Path(path)
    chunk: list[Transcript] = pickle.loads(written.read_bytes())
    written.unlink()
    return chunk
