"""Two studies against each other: the rule by hand, and what is left out and why."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from report_fixtures import GOLDEN, golden_study

from kevin.core.errors import DataError
from kevin.report.diff import AGREES, DIFFERS, LEFT_OUT, Comparison, compare, holds_times


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of results with tables of the report, a configuration, a split and a provenance."""
    results = tmp_path_factory.mktemp("made") / "results"
    for name in ("level1", "level2", "turns", "tasks"):
        table(results / f"tables/{name}.csv", pd.read_csv(GOLDEN / f"tables/{name}.csv"))
    (results / "config.yaml").write_text(yaml.safe_dump(golden_study().model_dump(mode="json")))
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
    path.write_text(json.dumps(content) if path.suffix == ".json" else yaml.safe_dump(content))


def table(path: Path, rows: list[dict[str, Any]] | pd.DataFrame) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_csv(path, index=False)
    return path


def row(policy: str, value: float, arm: float, **more: Any) -> dict[str, Any]:
    return {"policy": policy, "x": value, "x_low": value - arm, "x_high": value + arm, **more}


def statuses(found: Comparison) -> list[str]:
    return found.cells["status"].tolist()


@pytest.mark.parametrize(("value", "status"), [(6.9, AGREES), (7.1, DIFFERS), (-6.9, AGREES), (-7.1, DIFFERS)])
def test_those_differ_whose_intervals_do_not_overlap(tmp_path: Path, value: float, status: str) -> None:
    found = compare(table(tmp_path / "a.csv", [row("p", 0.0, 3.0)]), table(tmp_path / "b.csv", [row("p", value, 4.0)]))
    (cell,) = found.cells.to_dict("records")
    assert (cell["status"], cell["row"], cell["column"]) == (status, "policy p", "x")
    assert (cell["stored_low"], cell["results"], cell["results_high"]) == (-3.0, value, value + 4.0)


def test_numbers_without_a_width_are_compared_with_their_like_alone(tmp_path: Path) -> None:
    a = table(tmp_path / "a.csv", [row("p", 2.0, 0.0), row("q", 2.0, 0.0), row("r", 2.0, 0.0)])
    b = table(tmp_path / "b.csv", [row("p", 2.1, 0.0), row("q", 2.0, 0.0), row("r", 3.0, 0.5)])
    assert statuses(compare(a, b)) == [LEFT_OUT, AGREES, LEFT_OUT]


def test_a_gain_has_its_interval_under_another_name(tmp_path: Path) -> None:
    rows = [{"policy": "p", "mean_score_gain": v, "ci_low": v - 1, "ci_high": v + 1} for v in (0.0, 3.0)]
    found = compare(table(tmp_path / "a.csv", rows[:1]), table(tmp_path / "b.csv", rows[1:]))
    assert found.cells["column"].tolist() == ["mean_score_gain"] and statuses(found) == [DIFFERS]


def test_the_same_results_agree_everywhere(made: Path) -> None:
    found = compare(made, made)
    assert set(statuses(found)) == {AGREES} and len(found.cells) > 500 and found.origins == []


def test_a_moved_number_is_found_and_nothing_else(copies: tuple[Path, Path]) -> None:
    path = copies[1] / "tables/level1.csv"
    frame = pd.read_csv(path)
    names = ["correct_avg", "correct_avg_low", "correct_avg_high"]
    frame.loc[0, names] = frame.loc[0, names] + 5
    frame.to_csv(path, index=False)
    (cell,) = compare(*copies).of(DIFFERS).to_dict("records")
    assert (cell["table"], cell["column"]) == ("level1", "correct_avg")
    assert cell["row"] == "policy base, baseline eager, subset all tasks, num_seeds 1"


def test_what_only_one_has_is_said(copies: tuple[Path, Path]) -> None:
    (copies[0] / "tables/turns.csv").unlink()
    path = copies[1] / "tables/tasks.csv"
    pd.read_csv(path).iloc[1:].to_csv(path, index=False)
    reasons = set(compare(*copies).of(LEFT_OUT)["reason"])
    assert reasons == {
        "the table is in the results alone, not in the stored ones",
        "the row is in the stored ones alone, not in the results",
    }


def test_rows_of_other_sizes_are_not_compared(tmp_path: Path) -> None:
    a, b = (table(tmp_path / f"{n}.csv", [row("p", 1.0, 0.1, turns=n)]) for n in (4, 8))
    assert compare(a, b).cells["reason"].tolist() == ["turns 4 against 8"]


@pytest.mark.parametrize(
    ("file", "edit", "reason"),
    [
        ("provenance.json", lambda c: c.update(cpu="Another"), "other hardware"),
        ("config.yaml", lambda c: c["judge"].update(version=1), "another version of the judging protocol"),
        ("split.yaml", lambda c: c["parts"]["level1"].update(a="2"), "other tasks"),
    ],
)
def test_what_studies_depend_on_keeps_their_numbers_apart(
    copies: tuple[Path, Path], file: str, edit: Callable[[Any], object], reason: str
) -> None:
    change(copies[1] / file, edit)
    found = compare(*copies)
    left_out = found.of(LEFT_OUT)
    assert set(left_out["reason"]) == {reason} and found.origins
    assert set(statuses(compare(*copies, anyway=True))) == {AGREES}
    if reason == "other hardware":
        assert all(holds_times(t, c) for t, c in zip(left_out["table"], left_out["column"], strict=True))
        assert not any(holds_times(c.table, c.column) for c in found.of(AGREES).itertuples() if c.row[:6] == "policy")
    if reason == "other tasks":
        assert "level1" in set(left_out["table"]) and set(found.of(AGREES)["table"]) >= {"level2"}


def test_a_changed_setting_is_said_and_compared_across(copies: tuple[Path, Path]) -> None:
    change(copies[1] / "config.yaml", lambda c: c["reward"].update(gamma=0.9))
    found = compare(*copies)
    assert [said for said in found.origins if "reward.gamma" in said] and set(statuses(found)) == {AGREES}


def test_what_is_not_known_is_said_and_compared_across(copies: tuple[Path, Path]) -> None:
    (copies[1] / "provenance.json").unlink()
    found = compare(*copies)
    assert 'hardware: was "A CPU", is absent' in found.origins and set(statuses(found)) == {AGREES}


def test_rows_that_cannot_be_told_apart_are_refused(tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", [row("p", 1.0, 1.0), row("p", 1.0, 1.0)])
    with pytest.raises(DataError, match="two rows have the same policy"):
        compare(path, path)
    with pytest.raises(DataError, match="no such folder or table"):
        compare(path, tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no tables"):
        compare(path, tmp_path / "empty")


def test_a_damaged_configuration_is_named(copies: tuple[Path, Path]) -> None:
    (copies[0] / "config.yaml").write_text("[")
    with pytest.raises(DataError, match=r"config\.yaml: cannot be read"):
        compare(*copies)
