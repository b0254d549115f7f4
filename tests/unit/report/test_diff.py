"""Two studies against each other: the rule by hand, its false alarms and its power, what is left out and why."""

from __future__ import annotations

import json
import math
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from statistics import NormalDist
from typing import Any

import pandas as pd
import pytest
import yaml
from cli_fixtures import ROOT
from report_fixtures import make_study, write_scores, write_study

from kevin.core.errors import DataError
from kevin.core.protocol import PROTOCOL_VERSION
from kevin.report.diff import Estimate, cells_frame, compare, difference_of, holds_times, holm
from kevin.report.origin import read_origin
from kevin.report.tables import OURS, make_table

Z = NormalDist().inv_cdf(0.975)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of results with every table of the report, a configuration, a split and a provenance."""
    root = tmp_path_factory.mktemp("made")
    study = make_study(2)
    scores = write_scores(root / "work", study, write_study(root / "work", study))
    for name in ("level1", "level2", "primary", "serial_parallel", "turns", "mended", "pass_at_k", "tasks"):
        baselines = root / "work/cpu.parquet"
        make_table(name, scores, root / f"results/tables/{name}.csv", study=study, baselines=baselines)
    results = root / "results"
    (results / "config.yaml").write_text(yaml.safe_dump(study.model_dump(mode="json")))
    (results / "split.yaml").write_text(yaml.safe_dump({"parts": {"level1": {"a": "1"}, "level2": {"b": "1"}}}))
    provenance = {"cpu": "A CPU", "gpus": [], "commit": "abc", "config_digest": "d", "versions": {"torch": "1"}}
    (results / "provenance.json").write_text(json.dumps(provenance))
    return results


@pytest.fixture
def copies(made: Path, tmp_path: Path) -> tuple[Path, Path]:
    return (shutil.copytree(made, tmp_path / "stored"), shutil.copytree(made, tmp_path / "results"))


def change(path: Path, change: Callable[[Any], object]) -> None:
    content = yaml.safe_load(path.read_text())
    change(content)
    path.write_text(yaml.safe_dump(content))


def edit(path: Path, **rows: Any) -> None:
    """Set columns of the first row that is this study's."""
    frame = pd.read_csv(path)
    for column, value in rows.items():
        frame.loc[0, column] = value
    frame.to_csv(path, index=False)


def table(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_csv(path, index=False)
    return path


def row(policy: str, value: float, arm: float, **more: Any) -> dict[str, Any]:
    return {"policy": policy, "x": value, "x_low": value - arm, "x_high": value + arm, **more}


# --- the rule -----------------------------------------------------------------------------------------------------


def test_symmetric_intervals_are_the_z_test() -> None:
    """Standard errors 3 and 4 of estimates that are 12 apart: z = 12 / 5."""
    d = difference_of(Estimate(10, 10 - 3 * Z, 10 + 3 * Z), Estimate(22, 22 - 4 * Z, 22 + 4 * Z))
    assert d.value == 12
    assert (d.low, d.high) == (pytest.approx(12 - 5 * Z), pytest.approx(12 + 5 * Z))


def test_of_skewed_intervals_the_arms_that_face_each_other_count() -> None:
    d = difference_of(Estimate(1.0, 0.0, 4.0), Estimate(6.0, 2.0, 20.0))
    assert d.low == pytest.approx(5 - math.hypot(6 - 2, 4 - 1))
    assert d.high == pytest.approx(5 + math.hypot(20 - 6, 1 - 0))
    back = difference_of(Estimate(6.0, 2.0, 20.0), Estimate(1.0, 0.0, 4.0))
    assert (back.low, back.high) == (pytest.approx(-d.high), pytest.approx(-d.low))


def test_p_is_below_the_level_just_where_the_interval_leaves_zero_out(tmp_path: Path) -> None:
    a = table(tmp_path / "a.csv", [row("p", 0.0, 3.0)])
    for value, differs in ((4.99, False), (5.01, True)):
        found = compare(a, table(tmp_path / "b.csv", [row("p", value, 4.0)]))
        (cell,) = found.cells
        assert (cell.status == "differs") is differs
        assert cell.difference is not None and cell.difference.low is not None
        assert (cell.difference.low > 0) is differs
        assert cell.p == pytest.approx(2 * NormalDist().cdf(-Z * value / 5))


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


@pytest.mark.slow
def test_false_alarms_and_power(tmp_path: Path) -> None:
    """60 pairs of like studies, 50 cells each: uncorrected nearly all have an alarm, corrected one in twenty."""
    rng = random.Random(0)
    alarms = dict.fromkeys(("holm", "bonferroni", "none"), 0)
    for _ in range(60):
        paths = [
            table(tmp_path / f"{side}.csv", [row(f"p{i}", rng.gauss(i, 1), Z) for i in range(50)]) for side in "ab"
        ]
        for correction in alarms:
            alarms[correction] += bool(compare(*paths, correction=correction).of("differs"))  # type: ignore[arg-type]
    assert alarms["none"] > 45
    assert alarms["bonferroni"] <= alarms["holm"] <= 9
    rows = [row(f"p{i}", rng.gauss(i, 1), Z) for i in range(50)]
    moved = [*rows[:-1], row("p49", float(rows[-1]["x"]) + 8, Z)]
    found = compare(table(tmp_path / "a.csv", rows), table(tmp_path / "b.csv", moved))
    assert [cell.row for cell in found.of("differs")] == ["policy p49"]


def test_a_share_without_a_width_has_the_exact_interval(tmp_path: Path) -> None:
    """1 of 1 against 0.27 says nothing; 40 of 40 does. The bound of n tasks that are all correct is 0.025^(1/n)."""

    def mended(value: float, arm: float, kernels: int) -> dict[str, Any]:
        ends = {"mended_low": value - arm, "mended_high": value + arm}
        return {"policy": "p", "error": "any", "mended": value, **ends, "num_kernels": kernels}

    other = table(tmp_path / "b.csv", [mended(0.27, 0.1, 30)])
    for kernels, status in ((1, "agrees"), (40, "differs")):
        cell = compare(table(tmp_path / "a.csv", [mended(1.0, 0.0, kernels)]), other).cells[0]
        assert cell.status == status
        assert cell.stored == (1.0, pytest.approx(0.025 ** (1 / kernels)), 1.0)


def test_numbers_without_a_width_are_not_judged(tmp_path: Path) -> None:
    a = table(tmp_path / "a.csv", [row("p", 2.0, 0.0), row("q", 2.0, 0.0)])
    b = table(tmp_path / "b.csv", [row("p", 2.1, 0.0), row("q", 2.0, 0.0)])
    found = compare(a, b)
    assert [cell.status for cell in found.cells] == ["not compared", "agrees"]
    assert "neither interval has a width" in found.cells[0].reason
    plain = [table(tmp_path / f"{n}.csv", [{"policy": "p", "eager_us": v}]) for n, v in (("c", 1.0), ("d", 1.1))]
    assert "no interval is given" in compare(*plain).cells[0].reason


def test_another_source_s_rows_are_the_same_or_not(tmp_path: Path) -> None:
    rows = [{"source": OURS, **row("p", 1.0, 0.5)}, {"source": "paper", "policy": "p", "x": 1.1}]
    a = table(tmp_path / "a.csv", rows)
    assert compare(a, a).of("differs") == []
    found = compare(a, table(tmp_path / "b.csv", [rows[0], {**rows[1], "x": 1.2}]))
    assert [cell.row for cell in found.of("differs")] == ["source paper, policy p"]


# --- whole studies ------------------------------------------------------------------------------------------------


def test_a_study_is_itself(made: Path) -> None:
    found = compare(made, made)
    assert found.of("differs") == found.of("not compared") == []
    assert found.origins == ()
    assert {cell.table for cell in found.cells} == {path.stem for path in (made / "tables").glob("*.csv")}
    assert len(found.cells) > 500


def test_one_changed_cell_is_found_and_named(copies: tuple[Path, Path]) -> None:
    edit(copies[1] / "tables/level1.csv", correct_avg=0.001, correct_avg_low=0.0, correct_avg_high=0.002)
    (cell,) = compare(*copies).of("differs")
    assert (cell.table, cell.column) == ("level1", "correct_avg")
    assert cell.row == "policy p0, baseline eager, subset all tasks"


def test_what_only_one_of_the_two_has(copies: tuple[Path, Path]) -> None:
    (copies[1] / "tables/mended.csv").unlink()
    level = copies[0] / "tables/level2.csv"
    frame = pd.read_csv(level)
    frame[frame["policy"] != "p1"].drop(columns="geomean_avg").to_csv(level, index=False)
    left_out = compare(*copies).of("not compared")
    assert {(c.table, c.reason) for c in left_out if c.table == "mended"} == {
        ("mended", "the table is in the stored ones alone, not in the results")
    }
    rows = {c.row for c in left_out if c.reason == "the row is in the results alone, not in the stored ones"}
    assert rows and all("policy p1" in name for name in rows)
    assert compare(*copies).of("differs") == []


@pytest.mark.parametrize(
    ("file", "edit_it", "said", "left_out", "compared"),
    [
        ("provenance.json", lambda c: c.update(cpu="B"), "hardware: A CPU against B", "speedup_best", "correct_avg"),
        (
            "config.yaml",
            lambda c: c["judge"].update(version=12),
            f"version of the judging protocol: {PROTOCOL_VERSION} against 12",
            "correct_avg",
            None,
        ),
        ("config.yaml", lambda c: c["judge"].update(atol=0.1), "judge.atol: 0.0001 against 0.1", "correct_avg", None),
        (
            "config.yaml",
            lambda c: c["judge"]["timing"].update(budget_s=9),
            "timing.budget_s",
            "speedup_avg",
            "correct_avg",
        ),
        ("config.yaml", lambda c: c["rollout"].update(temperature=0.1), "rollout.temperature", "correct_avg", None),
        ("split.yaml", lambda c: c["parts"]["level1"].update(a="2"), "tasks of level1", "correct_avg", None),
    ],
)
def test_what_keeps_cells_from_being_compared(
    copies: tuple[Path, Path],
    file: str,
    edit_it: Callable[[Any], object],
    said: str,
    left_out: str,
    compared: str | None,
) -> None:
    change(copies[1] / file, edit_it)
    edit(copies[1] / "tables/level1.csv", speedup_best=99.0, speedup_best_low=98.0, speedup_best_high=99.5)
    found = compare(*copies)
    assert any(said in d.what for d in found.origins)
    own = {c.column: c for c in found.cells if c.table == "level1" and c.row.startswith("policy p0, baseline eager")}
    assert own[left_out].status == "not compared" and said in own[left_out].reason
    assert compared is None or own[compared].status == "agrees"
    assert found.of("differs") == []
    kinds = [d.kind for d in found.origins]
    assert compare(*copies, anyway=kinds).of("differs"), "the reason can be overruled"


def test_only_what_a_difference_reaches_is_left_out(copies: tuple[Path, Path]) -> None:
    change(copies[1] / "split.yaml", lambda c: c["parts"]["level1"].update(a="2"))
    change(copies[1] / "config.yaml", lambda c: c["policies"]["p1"].update(model="another"))
    change(copies[1] / "config.yaml", lambda c: c["policies"]["p0"].update(label="another name"))
    cells = [c for c in compare(*copies).cells if c.stored is not None]
    of_split = {
        c.status for c in cells if c.table == "serial_parallel" and "policy p0" in c.row and "split level2" in c.row
    }
    assert of_split == {"agrees"}
    assert {c.status for c in cells if c.table == "level1" and "source" not in c.row} == {"not compared"}
    by_policy = {
        p: {c.status for c in cells if c.table == "level2" and c.row.startswith(f"policy {p}")} for p in ("p0", "p1")
    }
    assert by_policy == {"p0": {"agrees"}, "p1": {"not compared"}}


def test_what_does_not_matter_is_said_and_nothing_more(copies: tuple[Path, Path]) -> None:
    change(copies[1] / "config.yaml", lambda c: c.update(results="elsewhere", seed=3))
    change(copies[1] / "config.yaml", lambda c: c["pool"].update(kernels_in_flight=9))
    change(copies[1] / "provenance.json", lambda c: c.update(commit="def", versions={"torch": "2"}))
    found = compare(*copies)
    assert found.of("not compared") == found.of("differs") == []
    assert {d.kind for d in found.origins} == {"commit", "configuration", "versions"}


def test_a_key_that_was_not_saved_is_said_and_not_taken_for_another_value(copies: tuple[Path, Path]) -> None:
    change(copies[1] / "config.yaml", lambda c: c["rollout"].pop("temperature"))
    found = compare(*copies)
    assert found.of("not compared") == []
    assert ["rollout.temperature" in d.what for d in found.origins] == [True]


def test_rows_under_other_conditions_are_not_compared(copies: tuple[Path, Path]) -> None:
    edit(copies[1] / "tables/level1.csv", num_tasks=80, trajectories=16)
    reasons = {c.reason for c in compare(*copies).of("not compared")}
    assert reasons == {"trajectories 4 against 16; num_tasks 8 against 80"}


def test_two_files_and_a_file_and_a_folder(made: Path, tmp_path: Path) -> None:
    other = shutil.copy(made / "tables/level1.csv", tmp_path / "mine.csv")
    for pair in ((made / "tables/level1.csv", Path(other)), (made / "tables/level1.csv", made)):
        cells = compare(*pair).cells
        assert {c.table for c in cells} == {"level1"} and {c.status for c in cells} == {"agrees"}


def test_what_is_not_known_is_said_and_keeps_nothing_from_being_compared(copies: tuple[Path, Path]) -> None:
    (copies[1] / "provenance.json").unlink()
    found = compare(*copies)
    assert found.of("not compared") == []
    assert "hardware: A CPU against not known" in [d.what for d in found.origins]


def test_provenance_of_measured_files_is_read_where_no_file_says_it(tmp_path: Path) -> None:
    from kevin.core.files import write_parquet

    write_parquet(tmp_path / "scores/a.parquet", pd.DataFrame({"x": [1]}), "scores", {"cpu": "C", "gpus": []})
    assert read_origin(tmp_path).hardware == "C"
    (tmp_path / "config.yaml").write_text("judge: {device: cuda, version: 7}\n")
    (tmp_path / "provenance.json").write_text('{"cpu": "C", "gpus": [{"name": "H200"}, {"name": "H200"}]}')
    assert (read_origin(tmp_path).hardware, read_origin(tmp_path).protocol) == ("H200", 7)


def test_which_numbers_hold_times() -> None:
    times = {"speedup_best", "fast_1_avg", "geomean_best", "best_speedup", "gpu_seconds", "mean_score_gain", "eager_us"}
    assert {c for c in times if holds_times("any", c)} == times
    assert not any(holds_times("any", c) for c in ("correct_best", "fast_0_avg", "mended", "kept", "policy_correct"))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda p: None, "no such folder or table"),
        (lambda p: p.mkdir(), "holds no tables"),
        (lambda p: table(p / "a.csv", [row("p", 1, 1), row("p", 2, 1)]), "two rows have the same policy"),
        (
            lambda p: (table(p / "a.csv", [row("p", 1, 1)]), (p / "config.yaml").write_text("[")),
            "config.yaml: cannot be",
        ),
        (lambda p: (table(p / "a.csv", [row("p", 1, 1)]), (p / "split.yaml").write_text("a: 1")), "no split file"),
    ],
)
def test_unusable_input_is_one_sentence(tmp_path: Path, make: Callable[[Path], object], said: str) -> None:
    other = tmp_path / "other"
    make(other)
    good = table(tmp_path / "good/a.csv", [row("p", 1, 1)]).parent
    with pytest.raises(DataError, match=said) as caught:
        compare(good, other)
    assert "\n" not in str(caught.value)


def test_the_frame_has_a_row_for_each_cell(copies: tuple[Path, Path]) -> None:
    found = compare(*copies)
    frame = cells_frame(found)
    assert len(frame) == len(found.cells)
    assert {"stored", "stored_low", "results_high", "difference", "p_corrected", "reason"} <= set(frame.columns)


# --- the stored laptop study --------------------------------------------------------------------------------------


def test_the_stored_laptop_study_is_whole_and_can_be_compared_with(tmp_path: Path) -> None:
    laptop = ROOT / "results/reference/laptop"
    tables = {path.stem for path in (laptop / "tables").glob("*.csv")}
    assert tables >= {"level1", "level2", "serial_parallel", "turns", "mended", "pass_at_k", "tasks", "rl_gain"}
    origin = read_origin(laptop)
    assert origin.hardware and origin.protocol and origin.provenance and origin.provenance["commit"]
    assert origin.splits is not None and len(origin.splits["level1"]) == len(origin.splits["level2"]) == 8
    found = compare(laptop, laptop)
    assert {c.table for c in found.of("agrees")} == tables and found.of("differs") == found.of("not compared") == []
    other = shutil.copytree(laptop, tmp_path / "results")
    frame = pd.read_csv(other / "tables/level2.csv")
    worse = [c for c in frame.columns if c.startswith("correct_avg")]
    frame.loc[(frame["policy"] == "base") & (frame["source"] == OURS), worse] = 0.001
    frame.to_csv(other / "tables/level2.csv", index=False)
    assert {(c.table, c.column) for c in compare(laptop, other).of("differs")} == {("level2", "correct_avg")}
