"""The invented study that costs are measured on is one that every table and the page can be made of."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from kevin.cli import bench_report
from kevin.cli.app import app
from kevin.core.config import load_study
from kevin.core.errors import HarnessError
from kevin.core.files import read_turns
from kevin.report.claims import NOT_MEASURED
from kevin.report.html import make_report
from kevin.report.scores import score_rollouts
from kevin.report.synthetic import Synthetic, write_synthetic
from kevin.report.tables import SPLITS, TABLES, make_table


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Synthetic:
    root = tmp_path_factory.mktemp("synthetic")
    made = write_synthetic(root, num_tasks=12, num_trajectories=4, num_turns=2, num_policies=5, chars=300)
    for turns, scores, (policy, split) in zip(made.turns, made.scores, made.pairs, strict=True):
        score_rollouts(turns, made.tasks, scores, study=load_study([made.config]), policy=policy, split=split)
    return made


@pytest.mark.slow
def test_every_table_and_the_page_can_be_made_of_it(made: Synthetic, tmp_path: Path) -> None:
    study = load_study([made.config])
    names = [name for name in TABLES if name in ("level1", "level2") or name not in SPLITS]
    paths = [make_table(n, made.scores, tmp_path / f"{n}.csv", study=study, baselines=made.baselines) for n in names]
    tables = {path.stem: pd.read_csv(path) for path in paths}
    assert not any(table.empty for table in tables.values())
    claims = tables["claims"].set_index("claim")
    endpoint, layer_norm = claims.index[0], "LayerNorm is made 9.61 times as fast"
    assert endpoint.startswith("32 kernels a task")  # of two policies by names that none has here
    assert set(claims.index[claims["verdict"] == NOT_MEASURED]) == {endpoint, layer_norm}
    assert set(claims["num_seeds"].dropna()) == {2}, "multi- and single-turn RL, two seeds each"
    turns = read_turns(made.turns[0])[0]
    assert len(turns) == 6 * 4 * 2 and len({t.kernel.source for t in turns if t.kernel}) == len(turns)
    page = make_report(
        tmp_path / "report.html",
        study=study,
        tables=paths,
        figures=[],
        scores=made.scores,
        turns=made.turns,
        tasks=made.tasks,
        baselines=made.baselines,
    ).read_text()
    assert "multi-turn RL (2 seeds)" in page


def test_seconds_and_memory_of_every_step_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []

    def measured(arguments: list[str]) -> dict[str, float]:
        calls.append(arguments)
        return {"seconds": 1.5, "peak_mb": 100.0 + len(calls)}

    monkeypatch.setattr(bench_report, "_measured", measured)
    size = ["--tasks", "4", "--trajectories", "2", "--turns", "2", "--policies", "2", "--chars", "100"]
    run = CliRunner().invoke(app, ["bench", "report", "--out", str(tmp_path), *size])
    assert run.exit_code == 0, run.output
    rows = json.loads((tmp_path / "report_bench.json").read_text())["steps"]
    assert [call[0] for call in calls] == ["score"] * 4 + ["table"] * (len(rows) - 3) + ["rl-gain", "report"]
    assert {"scores", "table1", "claims", "report.html"} <= {row["step"] for row in rows}
    assert f"{1.5 * len(calls):.1f} s" in run.output and f"{100 + len(calls)} MB" in run.output


@pytest.mark.slow
def test_a_command_is_measured_and_a_failing_one_is_named(made: Synthetic, tmp_path: Path) -> None:
    out = tmp_path / "table2.csv"
    scores = [part for path in made.scores for part in ("--scores", str(path))]
    row = bench_report._measured(["table", "table2", "--config", str(made.config), *scores, "--out", str(out)])
    assert out.exists() and row["seconds"] > 0 and 20 < row["peak_mb"] < 4000
    with pytest.raises(HarnessError, match="kevin table nonsense failed"):
        bench_report._measured(["table", "nonsense", "--config", str(made.config), *scores, "--out", str(out)])
