"""`kevin diff` as a person meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from kevin.cli.app import app
from kevin.core.errors import DataError


def study(root: Path, correct: float, speedup: float, cpu: str = "A") -> Path:
    ends = {"low": -0.05, "high": 0.05}
    values = {"correct_avg": correct, "speedup_avg": speedup}
    row = {"policy": "base", "num_tasks": 8, **values}
    row |= {f"{name}_{end}": value + arm for name, value in values.items() for end, arm in ends.items()}
    (root / "tables").mkdir(parents=True)
    pd.DataFrame([row]).to_csv(root / "tables/level1.csv", index=False)
    (root / "provenance.json").write_text(json.dumps({"cpu": cpu, "commit": "c"}))
    return root


def run(*args: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["diff", *map(str, args)], env={"COLUMNS": "160", "NO_COLOR": "1"})
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


def test_exit_codes_and_what_is_printed(tmp_path: Path) -> None:
    a, b = study(tmp_path / "a", 0.5, 1.0), study(tmp_path / "b", 0.9, 1.0)
    code, said = run(a, a)
    assert code == 0 and "0 numbers differ, 2 agree, 0 were not compared" in said
    code, said = run(a, b)
    assert code == 1
    assert "level1" in said and "policy base" in said and "0.9" in said
    assert "1 numbers differ, 1 agree" in said


def test_other_hardware_is_told_and_can_be_overruled(tmp_path: Path) -> None:
    a, b = study(tmp_path / "a", 0.5, 1.0), study(tmp_path / "b", 0.5, 3.0, cpu="B")
    code, said = run(a, b)
    assert code == 0 and 'hardware: was "A", is "B"' in said and "1 were not compared" in said
    assert run(a, b, "--anyway")[0] == 1


def test_machine_readable_forms_hold_every_cell(tmp_path: Path) -> None:
    a, b = study(tmp_path / "a", 0.5, 1.0), study(tmp_path / "b", 0.9, 1.0)
    code, said = run(a, b, "--json", "--out", tmp_path / "diff.csv")
    found = json.loads(said)
    assert code == 1 and found["origins"] == []
    assert {c["column"]: c["status"] for c in found["cells"]} == {"correct_avg": "differs", "speedup_avg": "agrees"}
    assert (found["cells"][0]["stored"], found["cells"][0]["results_low"]) == (0.5, 0.85)
    assert len(pd.read_csv(tmp_path / "diff.csv")) == 2


def test_a_comparison_of_nothing_is_no_agreement(tmp_path: Path) -> None:
    a, b = study(tmp_path / "a", 0.5, 1.0), study(tmp_path / "b", 0.5, 1.0)
    (b / "tables/level1.csv").rename(b / "tables/level2.csv")
    with pytest.raises(DataError, match="nothing could be compared"):
        run(a, b)
