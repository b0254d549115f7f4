"""`kevin judge --batch`: many pairs from a file, resumable, nothing computed ever lost.

A malformed line stops everything before it starts, with its file and line. A reference that is no task module fails
alone: its output line carries ``error`` in place of a verdict. Verdicts are appended as they come; at the end the file
is put into the order of the input. A pair on which the harness failed gets no line, so the next run tries it again.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from kevin.api.pairs import make_task
from kevin.cli.verdict_view import verdict_record
from kevin.core.candidate import DialectChoice, make_kernel, refuse_file_name
from kevin.core.config import JudgePoolConfig
from kevin.core.errors import DataError, HarnessError, TaskError, UsageError
from kevin.core.files import append_line, is_stream, write_text
from kevin.core.progress import Progress, progress
from kevin.core.protocol import JudgeProtocol
from kevin.core.scratch import scratch_folder
from kevin.core.texts import read_text, split_lines, strict_json
from kevin.core.types import Frozen, Kernel, Task, Verdict

if TYPE_CHECKING:
    from kevin.judge.pool.judge_pool import JudgePool

log = logging.getLogger(__name__)

Record = dict[str, Any]


class Line(Frozen):
    """What an input line holds."""

    id: str | int
    reference: str
    kernel: str


class Pair(Line):
    place: str
    """File and line that it came from."""


def judge_batch(batch: Path, out: Path, *, protocol: JudgeProtocol, dialect: DialectChoice, store: Path | None) -> int:
    """Judge what is missing in ``out``. Returns the exit code: 0, 2 (some lines could not be used) or 3 (harness)."""
    if is_stream(out):
        raise UsageError(f"{out}: no file; --out is read again where a run goes on")
    pairs = read_pairs(batch)
    done = read_records(out)
    kernels, no_kernels = _kernels(pairs, dialect, protocol)
    _check_same_work(out, done, pairs, kernels, protocol)
    pending = [p for p in pairs if p.id not in done and p.id in kernels]
    if done:
        log.info("%s: %d of %d are done already", out, len(pairs) - len(pending), len(pairs))
    work, unusable = load_tasks(pending, _stored(pending, kernels, protocol, store) if store else ())
    unusable += no_kernels
    failures = _judge_all(work, kernels, out, done, unusable, protocol, store) if work else []
    order = {p.id: i for i, p in enumerate(pairs)}
    done.update({record["id"]: record for record in unusable})
    records = sorted(done.values(), key=lambda record: order.get(record["id"], -1))
    write_text(out, "".join(strict_json(record) + "\n" for record in records))
    counts = Counter(record.get("outcome", "unusable") for record in done.values())
    log.info("%s: %s", out, ", ".join(f"{n} {name}" for name, n in counts.most_common()))
    if failures:
        log.error(
            "kevin: the harness failed on %d pairs, start again to retry them; first: %s", len(failures), failures[0]
        )
        return 3
    return 2 if unusable else 0


def read_pairs(path: Path) -> list[Pair]:
    """All input lines. Raises UsageError that names file and line of the first one that is not a pair."""
    pairs: dict[str | int, Pair] = {}
    for number, line in enumerate(split_lines(read_text(path)), start=1):
        if not line.strip():
            continue
        try:
            fields = Line.model_validate(json.loads(line))
        except (ValueError, RecursionError) as e:
            what = f"not valid JSON: {e}"
            if isinstance(e, ValidationError):
                first = e.errors()[0]
                what = ": ".join([*(str(part) for part in first["loc"]), first["msg"]])
            raise UsageError(f'{path}:{number}: not a line of {{"id", "reference", "kernel"}}: {what}') from None
        for name in ("reference", "kernel"):
            refuse_file_name(getattr(fields, name), f"{path}:{number}: {name}")
        if fields.id in pairs:
            raise UsageError(f"{path}:{number}: the id {fields.id!r} stands on an earlier line too")
        pairs[fields.id] = Pair(place=f"{path}:{number}", **fields.model_dump())
    return list(pairs.values())


def read_records(path: Path) -> dict[str | int, Record]:
    """Verdicts of an earlier run by id; a last line that a killed run left half written is dropped."""
    if not path.exists():
        return {}
    text = path.read_text("utf-8")
    found = split_lines(text)
    records: dict[str | int, Record] = {}
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


def _kernels(
    pairs: list[Pair], dialect: DialectChoice, protocol: JudgeProtocol
) -> tuple[dict[str | int, Kernel], list[Record]]:
    """By id, and an error record for each that is no text."""
    kernels: dict[str | int, Kernel] = {}
    unusable: list[Record] = []
    for pair in pairs:
        try:
            kernels[pair.id] = make_kernel(pair.kernel, "", dialect, protocol)
        except UsageError as e:
            unusable.append(_error_record(pair, e, "kernel"))
    return kernels, unusable


def _check_same_work(
    out: Path,
    done: dict[str | int, Record],
    pairs: list[Pair],
    kernels: dict[str | int, Kernel],
    protocol: JudgeProtocol,
) -> None:
    """Raises UsageError when ``out`` holds a verdict on something else under an id of ours."""
    for pair in pairs:
        record = done.get(pair.id)
        if record is None:
            continue
        ours = {
            "task_digest": make_task(pair.reference).digest,
            "kernel_digest": kernels[pair.id].digest if pair.id in kernels else None,
            "protocol_digest": protocol.digest,
        }
        for name, digest in ours.items():
            if record.get(name) != digest:
                what = name.removesuffix("_digest")
                raise UsageError(f"{out}: the verdict under id {pair.id!r} is of another {what}; give another --out")


def _stored(
    pairs: list[Pair], kernels: dict[str | int, Kernel], protocol: JudgeProtocol, folder: Path
) -> set[str | int]:
    """Ids of the pairs whose verdicts stand in a store."""
    from kevin.core.provenance import device_name
    from kevin.judge.store import VerdictStore, verdict_key

    store, name = VerdictStore(folder), device_name(protocol.device)
    keys = {p.id: verdict_key(make_task(p.reference), kernels[p.id], protocol, name) for p in pairs}
    return {pair_id for pair_id, key in keys.items() if store.get(key) is not None}


def _task(pair: Pair) -> Task:
    """Not looked into. Raises UsageError for a reference that is no text."""
    return make_task(pair.reference, "user").model_copy(update={"id": pair.place})


def load_tasks(pairs: list[Pair], stored: Collection[str | int] = ()) -> tuple[list[tuple[Pair, Task]], list[Record]]:
    """Pairs with their task, and an error record for each whose reference is no task module.

    Args:
        stored: ids of pairs that are judged already. Nobody looks into their references again, which imports torch.
    """
    from kevin.tasks.format import inspect_task

    known: dict[str, Task | UsageError] = {}
    work: list[tuple[Pair, Task]] = []
    unusable: list[Record] = []
    for pair in pairs:
        if pair.id in stored:
            work.append((pair, _task(pair)))
            continue
        if pair.reference not in known:
            try:
                task = _task(pair)
                spec = inspect_task(pair.reference, pair.place)
                known[pair.reference] = task.model_copy(update={"spec": spec})
            except UsageError as e:
                known[pair.reference] = e
        found = known[pair.reference]
        if isinstance(found, Task):
            work.append((pair, found))
        else:
            unusable.append(_error_record(pair, found))
    return work, unusable


def _error_record(pair: Pair, error: UsageError, what: str = "task") -> Record:
    log.error("kevin: id %s: %s", pair.id, error)
    return {"id": pair.id, "error": what, "message": str(error)}


def _judge_all(
    work: list[tuple[Pair, Task]],
    kernels: dict[str | int, Kernel],
    out: Path,
    done: dict[str | int, Record],
    unusable: list[Record],
    protocol: JudgeProtocol,
    store: Path | None,
) -> list[HarnessError]:
    """Judge the pairs, adding each verdict to ``done`` and to the end of ``out`` as it comes.

    A reference that only fails when it runs for real is put aside in ``unusable``, and the rest goes on.
    """
    from kevin.judge.pool.judge_pool import JudgePool

    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, "".join(strict_json(record) + "\n" for record in done.values()))
    outcomes: Counter[str] = Counter()
    with ExitStack() as stack:
        folder = store or stack.enter_context(scratch_folder("kevin-store-"))
        pool: JudgePool = stack.enter_context(JudgePool(protocol, folder, JudgePoolConfig()))
        shown: Progress[object] = stack.enter_context(progress(len(work), "judge", "kernels"))

        def keep(index: int, result: Verdict | HarnessError) -> None:
            name = work[index][0].id
            if isinstance(result, Verdict) and name not in done:
                done[name] = {"id": name, **verdict_record(result)}
                append_line(out, strict_json(done[name]))
                outcomes[result.outcome.value] += 1
                shown.note(f"{outcomes['correct']} correct")
                shown.update()

        while True:
            try:
                results = pool.judge([(task, kernels[pair.id]) for pair, task in work], on_verdict=keep)
                return [r for r in results if isinstance(r, HarnessError)]
            except TaskError as e:
                bad = [pair for pair, task in work if f"{task.id}:" in str(e)]
                if not bad:
                    raise
                unusable += [_error_record(pair, e) for pair in bad]
                work = [(pair, task) for pair, task in work if pair not in bad]
