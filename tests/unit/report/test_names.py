"""Policies whose names look like something else to a reader of tables: text stays text."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from report_fixtures import make_study, write_report, write_study

from kevin.core.config import Study
from kevin.core.config.layers import plain
from kevin.core.config.load import validate_study
from kevin.core.errors import ConfigError
from kevin.core.files import read_table, write_csv
from kevin.report.scores import read_typed

ODD = ("007", "NA", "None", "1e5", "nan", "True", "null", "-1", "1.0", "inf", "N-A")


def renamed(study: Study, names: tuple[str, ...]) -> Study:
    policies = dict(zip(names, [p.model_copy(update={"label": None}) for p in study.policies.values()], strict=True))
    return study.model_copy(update={"policies": policies, "evaluate": names})


def test_names_come_back_from_a_table(tmp_path: Path) -> None:
    ones = ["1"] * len(ODD)
    columns = {"policy": list(ODD), "label": list(reversed(ODD)), "task_id": ones, "policies": ones}
    frame = pd.DataFrame(columns | {"speedup": [None, float("inf"), *[1 / 3] * (len(ODD) - 2)], "num_tasks": 7})
    write_csv(tmp_path / "t.csv", frame)
    found = read_table(tmp_path / "t.csv")
    assert list(found["policy"]) == list(ODD) and list(found["label"]) == list(reversed(ODD))
    assert list(found["task_id"]) == list(found["policies"]) == ones
    assert pd.isna(found["speedup"][0]) and found["speedup"][1:].tolist() == frame["speedup"][1:].tolist()
    assert found["num_tasks"].dtype == "int64"


def test_names_come_back_from_answers(tmp_path: Path) -> None:
    frame = pd.DataFrame({"policy": list(ODD), "turn": range(len(ODD))})
    write_csv(tmp_path / "answers.csv", frame)
    pd.testing.assert_frame_equal(read_typed(tmp_path / "answers.csv", "answers", {"turn": "int64"}), frame)


@pytest.mark.slow
def test_a_whole_report_of_such_names(tmp_path: Path) -> None:
    study = renamed(make_study(4), ODD[:4])
    page = write_report(tmp_path, study, write_study(tmp_path, study)).read_text()
    for name in ("level1", "table1", "turns", "mended", "pass_at_k", "tasks"):
        policies = set(read_table(tmp_path / f"{name}.csv")["policy"])
        assert set(ODD[:4]) <= policies, name
        shown = (tmp_path / f"{name}.md").read_text()
        assert all(f" {policy} " in shown for policy in ODD[:4]), name
    assert all(f">{policy}<" in page for policy in ODD[:4])


@pytest.mark.parametrize("name", [7, 1e5, None, True])
def test_a_name_that_is_none_says_what_to_write(name: object) -> None:
    """As YAML reads ``007``, ``1.0e5``, ``null`` and ``yes``."""
    for raw in ({"policies": {name: {"model": "m"}}, "evaluate": []}, {"policies": {}, "evaluate": [name]}):
        with pytest.raises(ConfigError, match=r"(policies|evaluate).*in quotes"):
            validate_study(plain(raw), "config.yaml")
