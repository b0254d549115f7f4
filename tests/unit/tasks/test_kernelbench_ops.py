"""The table of KernelBench's tasks: traced, written for, and kept out of what is composed."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from kevin.cli.app import app
from kevin.core.errors import ConfigError
from kevin.tasks.compose import compose_general
from kevin.tasks.kernelbench_ops import coverage, difference, kernelbench_rows, kernelbench_sequences
from kevin.tasks.ops import render_module, sequence

_SIZES = {
    "level1/72": {"batch_size": 2, "in_channels": 8, "depth": 4, "height": 5, "width": 6, "out_channels": 8},
    "level1/18": {"inner": 5, "rows": 6, "cols": 7},
    "level2/15": {"batch_size": 2, "in_channels": 3, "depth": 4, "height": 5, "width": 6, "out_channels": 8},
    "level2/45": {"batch_size": 2, "in_features": 8, "out_features": 16},
    "level2/51": {"batch_size": 2, "in_features": 8, "out_features": 16},
}


def test_the_table_holds_both_levels():
    names = [row.name for row in kernelbench_rows()]
    assert names == [f"level{level}/{number}" for level in (1, 2) for number in range(1, 101)]
    assert sum(row.outside is None for row in kernelbench_rows()) == 196


@pytest.mark.parametrize("name", _SIZES)
def test_modules_are_compared_shape_by_shape(name, tmp_path):
    row = next(row for row in kernelbench_rows() if row.name == name)
    module = tmp_path / "module.py"
    source = render_module(row.ops, _SIZES[name])
    module.write_text(source)
    assert difference(row, module) is None
    module.write_text(source.replace("        return out", "        return out.unsqueeze(0)"))
    assert difference(row, module).startswith("outputs")


def test_no_composed_task_is_one_of_kernelbenchs():
    known = kernelbench_sequences()
    assert {sequence(row.ops) for row in kernelbench_rows()} <= known
    assert ("conv2d", "relu", "bias_add") in known
    assert not {sequence(t.ops) for t in compose_general(400, 0, "cpu")} & known


def test_coverage_is_told():
    told = CliRunner().invoke(app, ["tasks", "coverage"]).output
    assert "level1: 100 of 100" in told and "level2: 96 of 100" in told and "level2/66: dropout" in told


def test_a_folder_without_kernelbench_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="name a checkout"):
        coverage(tmp_path)
