"""`kevin judge --batch`: many pairs from a file, resumable, nothing computed ever lost.

A malformed line stops everything before it starts, with its file and line. A reference that is no task module fails
alone: its output line carries ``error`` in place of a verdict. Verdicts are appended as they come; at the end the file
is put into the order of the input. A pair on which the harness failed gets no line, so the next run tries it again.
"""

from __future__ import annotations

import json
import logging
import random
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from kevin.api.judge import Judge
from kevin.api.pairs import make_task
from kevin.core.candidate import DialectChoice, make_kernel, refuse_file_name
from kevin.core.errors import DataError, DiskFullError, HarnessError, KevinError, UsageError
from kevin.core.fields import problem
from kevin.core.files import append_line, is_stream, write_text
from kevin.core.progress import Progress
from kevin.core.protocol import JudgeProtocol
from kevin.core.scratch import scratch_folder
from kevin.core.texts import parse_json, read_text, split_lines, strict_json
from kevin.core.types import Frozen, Kernel, Outcome, Round, Task, Verdict

if TYPE_CHECKING:
    from kevin.core.config import JudgePoolConfig

log = logging.getLogger(__name__)

Record = dict[str, Any]
Id = str | int
_NUM_BOOTSTRAP = 2000


class Line(Frozen):
    """What an input line holds."""

    id: Id
    reference: str
    kernel: str


class Pair(Line):
    place: str
    """File and line that it came from."""


def speedup_interval(rounds: Sequence[Round]) -> tuple[float, float] | None:
    """95 % percentile-bootstrap interval of the median paired ratio; None with fewer than three rounds.

    It covers how the rounds of one run scatter, not what other runs would find: a machine that is busy throughout a run
    shifts all its rounds alike.
    """
    if len(rounds) < 3:
        return None
    ratios = [r.reference_us / r.kernel_us for r in rounds]
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(_NUM_BOOTSTRAP))
    return medians[int(0.025 * _NUM_BOOTSTRAP)], medians[int(0.975 * _NUM_BOOTSTRAP) - 1]


def verdict_record(verdict: Verdict) -> Record:
    """All fields of the verdict, with what follows from them: ``speedup`` and ``speedup_interval``."""
    interval = speedup_interval(verdict.rounds) if verdict.speedup is not None else None
    return {**verdict.model_dump(mode="json"), "speedup": verdict.speedup, "speedup_interval": interval}


def judge_many(
    pairs: Sequence[tuple[Task, Kernel]],
    protocol: JudgeProtocol,
    store: Path | None,
    *,
    pool: JudgePoolConfig | None = None,
    title: str = "judge",
    on_verdict: Callable[[int, Verdict], None] = lambda i, verdict: None,
) -> tuple[dict[int, Verdict], dict[int, KevinError]]:
    """Verdicts, and what kept others from one, by index, with a bar beside them; ``on_verdict`` is told as they come.

    Raises DiskFullError, as nothing can be judged then.
    """
    verdicts: dict[int, Verdict] = {}
    errors: dict[int, KevinError] = {}
    num_correct = 0
    with ExitStack() as stack:
        store = store or stack.enter_context(scratch_folder("kevin-store-"))  # which goes when this is killed, too
        judge = stack.enter_context(Judge(protocol=protocol, pool=pool, store=store))
        bar = stack.enter_context(Progress(len(pairs), title, "kernels"))
        for judged in judge.many(pairs):
            if isinstance(judged.error, DiskFullError):
                raise judged.error
            if judged.error is not None:
                errors[judged.index] = judged.error
            elif judged.verdict is not None:
                verdicts[judged.index] = judged.verdict
                num_correct += judged.verdict.outcome is Outcome.CORRECT
                on_verdict(judged.index, judged.verdict)
            bar.note(f"{num_correct} correct")
            bar.update()
    return verdicts, errors


def told_errors(errors: Iterable[KevinError]) -> int:
    """Say on how many pairs the harness failed. Returns the exit code: 0, 2 (some could not be used) or 3 (harness)."""
    found = list(errors)
    failures = [error for error in found if isinstance(error, HarnessError)]
    if failures:
        what = "kevin: the harness failed on %d pairs, start again to retry them; first: %s"
        log.error(what, len(failures), failures[0])
        return HarnessError.exit_code
    return UsageError.exit_code if found else 0


def judge_batch(batch: Path, out: Path, *, protocol: JudgeProtocol, dialect: DialectChoice, store: Path | None) -> int:
    """Judge what is missing in ``out``. Returns the exit code: 0, 2 (some lines could not be used) or 3 (harness)."""
    if is_stream(out):
        raise UsageError(f"{out}: no file; --out is read again where a run goes on")
    pairs = read_pairs(batch)
    done = read_records(out)
    work, unusable = _work(pairs, dialect, protocol)
    _check_same_work(out, done, work, unusable, protocol)
    pending = [pair_id for pair_id in work if pair_id not in done]
    pending.sort(key=lambda pair_id: work[pair_id][0].id)  # a reference is set up once for all of its kernels
    if done:
        log.info("%s: %d of %d are done already", out, len(pairs) - len(pending), len(pairs))
    errors: dict[int, KevinError] = {}
    if pending:
        write_records(out, done.values())

        def keep(i: int, verdict: Verdict) -> None:
            done[pending[i]] = {"id": pending[i], **verdict_record(verdict)}
            append_line(out, strict_json(done[pending[i]]))

        _, errors = judge_many([work[pair_id] for pair_id in pending], protocol, store, on_verdict=keep)
        for i, error in errors.items():
            if isinstance(error, UsageError):
                unusable[pending[i]] = _error_record(pending[i], error, "task")
    found = done | unusable
    order = {pair.id: i for i, pair in enumerate(pairs)}
    write_records(out, sorted(found.values(), key=lambda record: order.get(record["id"], -1)))
    counts = Counter(record.get("outcome", "unusable") for record in found.values())
    log.info("%s: %s", out, ", ".join(f"{n} {name}" for name, n in counts.most_common()) or "no pairs")
    return told_errors(errors.values()) or (UsageError.exit_code if unusable else 0)


def write_records(path: Path, records: Iterable[Record]) -> None:
    write_text(path, "".join(strict_json(record) + "\n" for record in records))


def read_pairs(path: Path) -> list[Pair]:
    """All input lines. Raises UsageError that names file and line of the first one that is not a pair."""
    pairs: dict[Id, Pair] = {}
    for number, line in enumerate(split_lines(read_text(path)), start=1):
        if not line.strip():
            continue
        try:
            fields = Line.model_validate(parse_json(line), strict=True)
        except (ValueError, RecursionError) as e:
            what = problem(e.errors()[0]) if isinstance(e, ValidationError) else f"not valid JSON: {e}"
            raise UsageError(f'{path}:{number}: not a line of {{"id", "reference", "kernel"}}: {what}') from None
        for name in ("reference", "kernel"):
            refuse_file_name(getattr(fields, name), f"{path}:{number}: {name}")
        if fields.id in pairs:
            raise UsageError(f"{path}:{number}: the id {fields.id!r} stands on an earlier line too")
        pairs[fields.id] = Pair(place=f"{path}:{number}", **fields.model_dump())
    return list(pairs.values())


def read_records(path: Path) -> dict[Id, Record]:
    """Verdicts of an earlier run by id; a last line that a killed run left half written is dropped."""
    if not path.exists():
        return {}
    text = path.read_text("utf-8")
    found = split_lines(text)
    records: dict[Id, Record] = {}
    for number, line in enumerate(found, start=1):
        try:
            record = json.loads(line)
            name = record["id"]
            hash(name)
        except (ValueError, TypeError, KeyError):
            if number == len(found) and not text.endswith("\n"):
                log.warning("%s:%d: half a line, left by an interrupted run; its pair is judged again", path, number)
                break
            raise DataError(
                f"{path}:{number}: not a verdict's line; move the file away or give another --out"
            ) from None
        if "error" not in record:
            records[name] = record
    return records


def _work(
    pairs: list[Pair], dialect: DialectChoice, protocol: JudgeProtocol
) -> tuple[dict[Id, tuple[Task, Kernel]], dict[Id, Record]]:
    """By id: what is judged, and an error record for each that holds no text. Equal references are one task."""
    tasks: dict[str, Task] = {}
    work: dict[Id, tuple[Task, Kernel]] = {}
    unusable: dict[Id, Record] = {}
    for pair in pairs:
        what = "task"
        try:
            if pair.reference not in tasks:
                tasks[pair.reference] = make_task(pair.reference, "user").model_copy(update={"id": pair.place})
            what = "kernel"
            work[pair.id] = tasks[pair.reference], make_kernel(pair.kernel, "", dialect, protocol)
        except UsageError as e:
            unusable[pair.id] = _error_record(pair.id, e, what)
    return work, unusable


def _check_same_work(
    out: Path,
    done: dict[Id, Record],
    work: dict[Id, tuple[Task, Kernel]],
    unusable: dict[Id, Record],
    protocol: JudgeProtocol,
) -> None:
    """Raises UsageError when ``out`` holds a verdict on something else under an id of ours."""
    for pair_id, record in done.items():
        changed = unusable[pair_id]["error"] if pair_id in unusable else None
        if pair_id in work:
            task, kernel = work[pair_id]
            ours = {"task": task.digest, "kernel": kernel.digest, "protocol": protocol.digest}
            changed = next((what for what, digest in ours.items() if record.get(f"{what}_digest") != digest), None)
        if changed:
            raise UsageError(f"{out}: the verdict under id {pair_id!r} is of another {changed}; give another --out")


def _error_record(pair_id: Id, error: UsageError, what: str) -> Record:
    log.error("kevin: id %s: %s", pair_id, error)
    return {"id": pair_id, "error": what, "message": str(error)}
