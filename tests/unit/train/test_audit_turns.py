"""The turns of a training with what a judge without guards would have paid: made-up verdicts, nothing is measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from core_fixtures import make_kernel, make_turn, make_verdict
from train_fixtures import TASKS, make_study

from kevin.core.config import Study
from kevin.core.errors import DataError, DeviceError
from kevin.core.files import TRAIN_TURNS, read_parquet, turns_frame, write_parquet
from kevin.core.types import Outcome, Turn, Verdict
from kevin.judge.benchmarks.unguarded import Unguarded
from kevin.judge.store import VerdictStore
from kevin.report import training as report
from kevin.report.catalogue import make_table
from kevin.train.audit_turns import AUDIT_KIND, audit_run

PAID = Unguarded(passed=True, kernel_us=1.0, reference_us=5.0, num_calls=100)
WRONG = Unguarded(passed=False, reason="wrong_values")
CORRECT, INCORRECT = Outcome.CORRECT, Outcome.INCORRECT
# name: outcome, reason, KernelBench's check -> what is measured (None: nothing is), paid unguarded, its speedup
CASES: dict[str, tuple[Outcome, str | None, str | None, Any, bool | None, float | None]] = {
    "right": (CORRECT, None, "passed", None, True, 2.0),
    "right but unscaled": (CORRECT, None, "failed", None, False, None),
    "right without a check": (CORRECT, None, None, PAID, True, 5.0),
    "wrong": (INCORRECT, "wrong_values", "failed", None, False, None),
    "wrong later": (INCORRECT, "wrong_after_timing", "passed", PAID, True, 5.0),
    "refused": (Outcome.REFUSED, "torch_compute", None, PAID, True, 5.0),
    "refused and wrong": (Outcome.REFUSED, "no_kernel", None, WRONG, False, None),
    "too fast": (Outcome.QUARANTINED, "clock_disagrees", "passed", PAID, True, 5.0),
    "swallowed": (Outcome.COMPILE_ERROR, "fallback_after_failed_build", None, PAID, True, 5.0),
    "not measured": (Outcome.REFUSED, "try_except", None, DeviceError("gone"), None, None),
    "does not compile": (Outcome.COMPILE_ERROR, "compile_error", None, None, False, None),
    "crashes": (Outcome.RUNTIME_ERROR, "segmentation_fault", None, None, False, None),
}


def _verdict(name: str) -> Verdict:
    outcome, reason, check, *_ = CASES[name]
    return make_verdict(
        outcome,
        kernel_us=1 if outcome in (CORRECT, Outcome.QUARANTINED) else None,
        eager_us=2,
        key=name,
        reason=reason,
        details={"kernelbench_check": check} if check else {},
        flags=("torch_compute",) if outcome is Outcome.REFUSED else (),
    )


def _turn(name: str, trajectory: int) -> Turn:
    verdict = _verdict(name)
    found = {"outcome": verdict.outcome, "speedup": verdict.speedup, "reason": verdict.reason, "verdict_key": name}
    return make_turn(task_id=TASKS[0].id, trajectory=trajectory, kernel=make_kernel(name), **found)


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return make_study(tmp_path, reward={"correctness_weight": 0.5})


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A folder of a run with two steps, and the store of its verdicts."""
    store = VerdictStore(tmp_path / "store")
    for name in CASES:
        store.put(_verdict(name))
    silent = {"kernel": None, "verdict_key": None, "speedup": None, "reason": "no_kernel_found"}
    turns = [_turn(name, i) for i, name in enumerate(CASES)]
    steps = {
        1: turns,
        2: [
            turns[0].model_copy(update={"outcome": Outcome.PARSE_ERROR, **silent}),
            turns[1].model_copy(update={"outcome": None, **silent, "reason": "SandboxError"}),
        ],
    }
    for step, played in steps.items():
        frame = turns_frame(played)
        for column in ("score", "return", "advantage"):
            frame[column] = [float("nan") if t.outcome is None else 0.25 for t in played]
        write_parquet(tmp_path / f"run/turns/step_{step:05d}.parquet", frame, TRAIN_TURNS, {})
    return tmp_path / "run"


def _audit(study: Study, run: Path, **changes: Any) -> tuple[pd.DataFrame, list[str]]:
    asked: list[str] = []

    def measure(pairs: Any) -> list[Any]:
        asked.extend(kernel.source for _, kernel in pairs)
        return [CASES[kernel.source][3] for _, kernel in pairs]

    folder = run.parent
    paths = {"tasks_path": folder / "tasks.parquet", "store": folder / "store", "out": folder / "audit.parquet"}
    audit_run(study, "tiny", run, measure=measure, **{**paths, **changes})
    return read_parquet(folder / "audit.parquet", AUDIT_KIND)[0], asked


def test_what_a_judge_without_guards_would_pay(study: Study, run: Path) -> None:
    frame, asked = _audit(study, run)
    assert asked == [name for name, case in CASES.items() if case[3] is not None], "nothing else is measured"
    first = frame[frame["step"] == 1].reset_index(drop=True)
    for i, (name, (_, _, _, _, paid, speedup)) in enumerate(CASES.items()):
        row = first.loc[i]
        assert row["unguarded"] == paid, name
        expected = None if paid is None else (0.5 + speedup if paid and speedup else 0.0)
        assert (None if pd.isna(row["unguarded_score"]) else row["unguarded_score"]) == expected, name
        assert (None if pd.isna(row["unguarded_speedup"]) else row["unguarded_speedup"]) == speedup, name
    assert list(first["unguarded_by"].unique()) == ["verdict", "measured", "unmeasured"]
    assert first.loc[list(CASES).index("refused"), "flags"] == "torch_compute"
    assert set(frame["rules"]) == {" ".join(study.judge.rules)} and set(frame["score"]) == {0.25}


def test_turns_without_a_kernel_earn_nothing_and_those_without_a_verdict_are_left_out(study: Study, run: Path) -> None:
    frame, _ = _audit(study, run)
    (row,) = frame[frame["step"] == 2].to_dict("records")
    assert (row["outcome"], row["unguarded"], row["unguarded_score"]) == ("parse_error", False, 0.0)


def test_the_report_reads_what_is_written(study: Study, run: Path, tmp_path: Path) -> None:
    _audit(study, run)
    assert report.AUDIT_KIND == AUDIT_KIND
    make_table("audit", tmp_path / "audit.csv", study=study, kernels=[tmp_path / "audit.parquet"])
    table = pd.read_csv(tmp_path / "audit.csv")
    (total,) = table[(table["kind"] == report.PAID) & table["step"].isna()].to_dict("records")
    assert (total["num_kernels"], total["num_judged"]) == (4, len(CASES) + 1)
    assert total["paid_unguarded"] == pytest.approx(4 * 5.5)
    (every,) = table[(table["kind"] == report.ALL) & table["step"].isna()].to_dict("records")
    assert every["num_unmeasured"] == 1


def test_files_that_do_not_belong_together_are_named(study: Study, run: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"12 of 12 verdicts of this training are not in this store"):
        _audit(study, run, store=tmp_path / "other")
    with pytest.raises(DataError, match="no turns"):
        audit_run(study, "tiny", tmp_path / "none", tmp_path / "tasks.parquet", tmp_path / "store", tmp_path / "out")
