"""The audit's table and figure from made-up turns."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from train_fixtures import make_study

from kevin.core.config import Study
from kevin.core.errors import DataError, UsageError
from kevin.core.files import write_parquet
from kevin.report.catalogue import make_figure, make_table
from kevin.report.figures.look import theme
from kevin.report.figures.training import audit
from kevin.report.training import ALL, ANY, AUDIT_KIND, PAID, audit_table, guards, kinds_of, wilson

RULES = "no_kernel torch_compute try_except pass_statement inherits_model harness_access memory_leak"


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return make_study(tmp_path)


def turn(outcome: str = "correct", reason: str | None = None, flags: str = "", **changes: Any) -> dict[str, Any]:
    correct = outcome == "correct"
    own = {
        "run": "tiny", "rules": RULES, "step": 1, "task_id": "a", "trajectory": 0, "turn": 1, "outcome": outcome,
        "reason": reason, "score": 1.3 if correct else 0.0, "speedup": 1.0 if correct else None, "flags": flags,
        "kernelbench_check": "passed" if correct else None, "unguarded": correct,
        "unguarded_speedup": 1.0 if correct else None, "unguarded_score": 1.3 if correct else 0.0,
        "unguarded_by": "verdict",
    }  # fmt: skip
    return own | changes


PAYS = {"unguarded": True, "unguarded_speedup": 7.0, "unguarded_score": 7.3, "unguarded_by": "measured"}
TURNS = [
    turn(),
    turn("incorrect", "wrong_values"),
    turn("incorrect", "input_mutated", **PAYS),
    turn("refused", "torch_compute", "harness_access torch_compute", **PAYS),
    turn("incorrect", "not_written", step=2),
    turn("quarantined", "clock_disagrees", step=2, unguarded=None, unguarded_score=None, unguarded_by="unmeasured"),
    turn(run="free", rules="", flags="torch_compute"),
]


def row(table: pd.DataFrame, run: str, step: int | None, kind: str) -> dict[str, Any]:
    at = table["step"].isna() if step is None else table["step"] == step
    (found,) = table[(table["run"] == run) & at.fillna(False) & (table["kind"] == kind)].to_dict("records")
    return {str(name): value for name, value in found.items()}


@pytest.mark.parametrize(
    ("count", "of", "low", "high"),
    [(0, 64, 0.0, 0.0566), (64, 64, 0.9434, 1.0), (10, 20, 0.2993, 0.7007), (1, 10, 0.0179, 0.4042)],
)
def test_wilsons_interval(count: int, of: int, low: float, high: float) -> None:
    """Values of R's ``binom::binom.wilson``; for none of n the upper end is z^2 / (n + z^2)."""
    assert wilson(count, of) == pytest.approx((low, high), abs=5e-5)
    assert wilson(0, of)[1] == pytest.approx(1.959964**2 / (of + 1.959964**2))


def test_kinds() -> None:
    found = list(kinds_of(pd.DataFrame(TURNS)))
    assert found == [
        {ALL},
        {ALL},  # merely wrong
        {ALL, ANY, PAID, "input_mutated"},
        {ALL, ANY, PAID, "harness_access", "torch_compute"},
        {ALL, ANY, "not_written"},
        {ALL, ANY, "clock_disagrees"},  # not known to be paid
        {ALL, ANY, "torch_compute"},  # correct, and paid by this judge too
    ]


def test_shares_and_what_is_paid(study: Study) -> None:
    table = audit_table(pd.DataFrame(TURNS), study)
    first = row(table, "tiny", 1, PAID)
    assert (first["num_kernels"], first["num_judged"], first["share"]) == (2, 4, 0.5)
    assert (first["paid"], first["paid_unguarded"]) == (0.0, pytest.approx(14.6))
    every = row(table, "tiny", None, ALL)
    assert (every["num_judged"], every["paid"]) == (6, pytest.approx(1.3))
    assert (every["paid_unguarded"], every["num_unmeasured"]) == (pytest.approx(1.3 + 14.6), 1)
    assert row(table, "tiny", 2, "input_mutated")["num_kernels"] == 0
    assert row(table, "tiny", 2, "input_mutated")["share_high"] > 0, "none of two does not mean never"
    assert row(table, "free", 1, "torch_compute")["paid"] == pytest.approx(1.3)
    assert set(table["kind"]) == {
        ALL, ANY, PAID, "harness_access", "torch_compute", "input_mutated", "not_written", "clock_disagrees"
    }  # fmt: skip
    sizes = table.groupby(["run", "kind"]).size()
    assert (sizes["tiny"] == 3).all() and (sizes["free"] == 2).all(), "each step, and all of them together"


def test_guards(study: Study) -> None:
    assert (guards(RULES, study), guards("", study), guards("no_kernel", study)) == ("on", "off", "some")
    table = audit_table(pd.DataFrame(TURNS), study)
    assert dict(table.drop_duplicates("run")[["run", "guards"]].itertuples(index=False)) == {
        "tiny": "on",
        "free": "off",
    }


def test_a_training_without_any_hack_says_so(study: Study, tmp_path: Path) -> None:
    path = tmp_path / "tiny.parquet"
    write_parquet(path, pd.DataFrame([turn(step=s) for s in (1, 1, 2)]), AUDIT_KIND, {})
    make_table("audit", tmp_path / "audit.csv", study=study, kernels=[path])
    table = pd.read_csv(tmp_path / "audit.csv")
    assert list(table["kind"].unique()) == [ALL, ANY, PAID]
    assert list(table[table["kind"] == ANY]["num_kernels"]) == [0, 0, 0]
    with theme():
        figure, _ = audit(table, study)
        assert figure.axes


def test_the_figure_holds_every_run_and_step(study: Study, tmp_path: Path) -> None:
    for run in ("tiny", "free"):
        own = pd.DataFrame([t for t in TURNS if t["run"] == run])
        write_parquet(tmp_path / f"{run}.parquet", own, AUDIT_KIND, {})
    files = [tmp_path / "tiny.parquet", tmp_path / "free.parquet"]
    make_table("audit", tmp_path / "audit.csv", study=study, kernels=files)
    shown = (tmp_path / "audit.md").read_text()
    assert re.search(
        r"\| tiny \(all rules enforced\) +\| not correct here, paid without guards +\| +2 \| +33\.3 % \(", shown
    )
    assert "paid_unguarded" not in shown and "input mutated" in (tmp_path / "audit.tex").read_text()
    _, _, data = make_figure("audit", tmp_path / "figures", study=study, table=tmp_path / "audit.csv")
    plotted = pd.read_csv(data)
    assert set(zip(plotted["run"], plotted["step"], strict=True)) == {("tiny", 1), ("tiny", 2), ("free", 1)}


def test_nothing_to_audit(study: Study, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--kernels"):
        make_table("audit", tmp_path / "audit.csv", study=study)
    write_parquet(tmp_path / "none.parquet", pd.DataFrame(TURNS).iloc[:0], AUDIT_KIND, {})
    with pytest.raises(DataError, match="no judged turn"):
        make_table("audit", tmp_path / "audit.csv", study=study, kernels=[tmp_path / "none.parquet"])
