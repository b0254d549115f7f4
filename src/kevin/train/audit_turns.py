"""Every kernel of a training with what is suspicious about it, and what a judge without guards would have paid for it.

For kernels that this judge refused, called wrong or put into quarantine, that is measured: see
`kevin.judge.benchmarks.unguarded`. For what it called correct its own time is taken, where KernelBench's check passes.
What does not compile, crashes or never ends earns nothing anywhere.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from kevin.core import files, reward
from kevin.core.config import RewardConfig, Study
from kevin.core.errors import DataError, HarnessError
from kevin.core.protocol import JudgeProtocol
from kevin.core.provenance import provenance
from kevin.core.types import Kernel, Outcome, Task, Turn, Verdict
from kevin.judge.store import VerdictStore

logger = logging.getLogger(__name__)

AUDIT_KIND = "audit"
Source = Literal["verdict", "measured", "unmeasured"]
"""Who says what a judge without guards would pay: this judge's verdict, a measurement, or nobody, since that failed."""
_MEASURED = (Outcome.REFUSED, Outcome.INCORRECT, Outcome.QUARANTINED)
_FALLBACK = "fallback_after_failed_build"

Measure = Callable[[Sequence[tuple[Task, Kernel]]], Sequence[Any]]
"""Pairs -> `Unguarded` or HarnessError, in order."""


def audit_run(
    study: Study, run: str, folder: Path, tasks_path: Path, store: Path, out: Path, *, measure: Measure | None = None
) -> None:
    """Write a row for each judged turn that the run ``folder`` trained on.

    Columns run, rules (those that were enforced, with spaces between), step, task_id, trajectory, turn, outcome,
    reason, flags (with spaces), score, speedup, kernelbench_check (of the verdict), unguarded (whether a judge without
    guards would pay; absent where that is not known), unguarded_speedup, unguarded_score, unguarded_by.

    Args:
        store: the verdicts of the training; what is measured is kept beside them.
        measure: in place of a measurement on the study's device.

    Raises:
        DataError: no turns, or a turn whose verdict is not in the store. HarnessError: no such device.
    """
    own, store = study.for_run(run), store.resolve()
    tasks = {t.id: t for t in files.read_tasks(tasks_path, "train")}
    turns = files.read_train_turns(folder)
    if not turns:
        raise DataError(f"{folder}: no turns; --run-dir names the folder of a training that has ended a step")
    verdicts = _verdicts([turn for _, turn, _ in turns], VerdictStore(store), store)
    asked = [(step, turn) for step, turn, _ in turns if _needs_measuring(verdicts.get(turn.verdict_key or ""))]
    found: dict[str, Any] = {}
    if asked:
        pairs = [(_task(tasks, turn, folder), turn.kernel) for _, turn in asked if turn.kernel is not None]
        logger.info("%s: %d of %d turns are measured without guards", run, len(pairs), len(turns))
        results = (measure or _measure(own.judge, store))(pairs)
        keys = [turn.verdict_key for _, turn in asked if turn.kernel is not None]
        found = dict(zip((str(key) for key in keys), results, strict=True))
    rows = [
        {
            "run": run,
            "rules": " ".join(own.judge.rules),
            "step": step,
            "task_id": turn.task_id,
            "trajectory": turn.trajectory,
            "turn": turn.turn,
            "outcome": str(turn.outcome),
            "reason": turn.reason,
            "score": score,
            "speedup": turn.speedup,
            **_of_verdict(verdicts.get(turn.verdict_key or ""), found.get(turn.verdict_key or ""), own.reward),
        }
        for step, turn, score in turns
        if turn.outcome is not None
    ]
    frame = pd.DataFrame(rows)
    for name in ("score", "speedup", "unguarded_speedup", "unguarded_score"):
        frame[name] = frame[name].astype("float64")
    files.write_parquet(out, frame, AUDIT_KIND, provenance(study.digest, run=run))


def _verdicts(turns: Sequence[Turn], store: VerdictStore, folder: Path) -> dict[str, Verdict]:
    keys = dict.fromkeys(turn.verdict_key for turn in turns if turn.verdict_key is not None)
    found = {key: store.get(key) for key in keys}
    if missing := sum(verdict is None for verdict in found.values()):
        raise DataError(f"{folder}: {missing} of {len(keys)} verdicts of this training are not in this store; name the "
                        f"one that it was judged with, or train again")  # fmt: skip
    return {key: verdict for key, verdict in found.items() if verdict is not None}


def _task(tasks: dict[str, Task], turn: Turn, folder: Path) -> Task:
    if turn.task_id not in tasks:
        raise DataError(f"{folder}: was trained on {turn.task_id}, which is not among --tasks; name its own")
    return tasks[turn.task_id]


def _check(verdict: Verdict) -> str | None:
    check = verdict.details.get("kernelbench_check")
    return None if check is None else str(check)


def _needs_measuring(verdict: Verdict | None) -> bool:
    """Whether a judge without guards may pay, and this judge's verdict does not say how much."""
    if verdict is None or _check(verdict) == "failed":
        return False
    if verdict.outcome is Outcome.CORRECT:
        return _check(verdict) is None
    return verdict.outcome in _MEASURED or verdict.reason == _FALLBACK


def _of_verdict(verdict: Verdict | None, found: Any, config: RewardConfig) -> dict[str, Any]:
    """What is known of a turn beyond the turn itself; of one without a kernel, that it earns nothing."""
    passed: bool | None = False
    speedup: float | None = None
    by: Source = "verdict"
    if verdict is not None and _needs_measuring(verdict):
        by = "unmeasured" if found is None or isinstance(found, HarnessError) else "measured"
        passed, speedup = (None, None) if by == "unmeasured" else (found.passed, found.speedup)
    elif verdict is not None and verdict.outcome is Outcome.CORRECT:
        passed = _check(verdict) == "passed"
        speedup = verdict.speedup if passed else None
    score: float | None = None
    if passed is not None:
        score = reward.configured_score(Outcome.CORRECT if passed else Outcome.INCORRECT, speedup, config)
    return {
        "flags": " ".join(verdict.flags) if verdict is not None else "",
        "kernelbench_check": _check(verdict) if verdict is not None else None,
        "unguarded": passed,
        "unguarded_speedup": speedup,
        "unguarded_score": score,
        "unguarded_by": by,
    }


def _measure(protocol: JudgeProtocol, store: Path) -> Measure:
    from kevin.judge.benchmarks.unguarded import measure_unguarded
    from kevin.judge.evaluate import open_device

    return lambda pairs: measure_unguarded(pairs, lambda: open_device(protocol), protocol, store, "without guards")
