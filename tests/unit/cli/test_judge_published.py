"""`kevin judge --published`: what is drawn, what is compared, what is said of it."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_fixtures import ROOT, kevin
from core_fixtures import make_verdict
from typer.testing import CliRunner

from kevin.cli import judge_published as module
from kevin.cli.app import app
from kevin.core.errors import DataError, HarnessError, UsageError
from kevin.core.types import Outcome, Verdict
from kevin.report.published import Published, read_kernels

STORED = ROOT / "results/reference/laptop/published"


def verdict(outcome: Outcome, speedup: float | None) -> Verdict:
    return make_verdict(outcome, kernel_us=10.0 if outcome is Outcome.CORRECT else None, eager_us=10.0 * (speedup or 1))


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Pairs that are judged, and what becomes of them: as published, but twice as fast, unless ``change`` says so."""
    published = {(row["task_id"], row["kernel_digest"]): row for row, _ in read_kernels(Published(STORED))}
    seen: dict[str, Any] = {"pairs": [], "change": {}}

    def judge(pairs: list[Any], *args: Any, pool: Any) -> tuple[dict[int, Verdict], dict[int, HarnessError]]:
        seen["pairs"] = pairs
        rows = [published[task.id, kernel.digest] for task, kernel in pairs]
        same = [verdict(Outcome(row["outcome"]), row["speedup"] and 2 * row["speedup"]) for row in rows]
        found = {i: seen["change"].get(kernel.digest, same[i]) for i, (_, kernel) in enumerate(pairs)}
        errors = {i: error for i, error in found.items() if isinstance(error, HarnessError)}
        return {i: v for i, v in found.items() if i not in errors}, errors

    monkeypatch.setattr(module, "judge_many", judge)
    return seen


def test_what_is_found_again_and_what_is_not(
    judged: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert module.judge_published(STORED, None, out=tmp_path / "again.csv", store=None) == 0
    kernels = read_kernels(Published(STORED))
    assert len(judged["pairs"]) == len(kernels) > 10 and "kernels correct both times: median 2.00" in caplog.text
    correct = next(kernel.digest for row, kernel in kernels if row["outcome"] == "correct")
    judged["change"] = {correct: verdict(Outcome.INCORRECT, None)}
    assert module.judge_published(STORED, None, out=tmp_path / "again.csv", store=None) == 1
    assert "1 times incorrect, published as correct" in caplog.text
    rows = pd.read_csv(tmp_path / "again.csv")
    assert list(rows.columns) == module.COLUMNS and len(rows) == len(kernels)
    assert (rows["outcome"] != rows["outcome_now"]).sum() == 1
    judged["change"] = {correct: HarnessError("no room")}
    assert module.judge_published(STORED, None, out=None, store=None) == 3


def test_a_sample_is_the_same_each_time(judged: dict[str, Any]) -> None:
    drawn = []
    for _ in range(2):
        module.judge_published(STORED, 4, out=None, store=None)
        drawn.append([kernel.digest for _, kernel in judged["pairs"]])
    assert len(drawn[0]) == 4 and drawn[0] == drawn[1]


def test_a_kernel_of_no_task_is_named(judged: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "read_tasks", lambda path: [])
    with pytest.raises(DataError, match=r"tasks\.parquet: no task l"):
        module.judge_published(STORED, 1, out=None, store=None)


@pytest.mark.parametrize(
    ("table", "change", "said"),
    [
        ("tasks", {"source": lambda text: text + "# x\n"}, r"tasks\.parquet: task \S+ is not what its digest says"),
        ("kernels", {"outcome": lambda _: "corect"}, r"kernels\.parquet: \S+: no judged kernel: 'corect'"),
        ("kernels", {"dialect": lambda _: "c"}, r"kernels\.parquet: \S+: no judged kernel: .*dialect"),
        ("kernels", {"source": None}, r"kernels\.parquet: no column source"),
    ],
)
def test_a_damaged_folder_is_told_before_anything_is_judged(
    judged: dict[str, Any], tmp_path: Path, table: str, change: dict[str, Any], said: str
) -> None:
    for file in ("config.yaml", "tasks.parquet", "kernels.parquet"):
        shutil.copy(STORED / file, tmp_path)
    path = tmp_path / f"{table}.parquet"
    stored = pq.read_table(path)
    frame = stored.to_pandas()
    [(column, by)] = change.items()
    frame = frame.drop(columns=column) if by is None else frame.assign(**{column: frame[column].map(by)})
    pq.write_table(
        pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(stored.schema.metadata), path
    )
    with pytest.raises(DataError, match=f"(?s){said}"):
        module.judge_published(tmp_path, None, out=None, store=None)
    assert judged["pairs"] == []


@pytest.mark.slow
def test_by_hand(tmp_path: Path) -> None:
    """A real kernel, judged once more: over five seconds, as a judge starts for it."""
    run = kevin("judge", "--published", STORED, "--sample", "1", "--store", tmp_path / "store")
    assert run.returncode in (0, 1) and "1 kernels judged again" in run.stderr, run.stderr


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--published", "here", "--batch", "pairs.jsonl"], "its own configuration"),
        (["--sample", "3"], "goes with --published"),
    ],
)
def test_what_does_not_go_together_is_refused(given: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        CliRunner().invoke(app, ["judge", *given], catch_exceptions=False, standalone_mode=False)
