"""What `make study` says at its start."""

from __future__ import annotations

from pathlib import Path

import pytest

from kevin.core.config import Study, load_study
from kevin.train import forecast as module
from kevin.train.base_model import BATCH_SIZE
from kevin.train.forecast import Pace, forecast, forecast_text, measure_pace

ROOT = Path(__file__).parents[3]
PACE = Pace(step_s=0.3, compile_s=1.0, num_cores=2)


@pytest.fixture
def study() -> Study:
    return load_study([ROOT / "config/config.yaml"])


def seconds(study: Study, pace: Pace = PACE) -> dict[str, float]:
    return {stage.name: stage.seconds for stage in forecast(study, pace)}


def test_a_slower_machine_takes_longer_where_it_is_slower(study):
    usual = seconds(study)
    slow_steps = seconds(study, PACE.model_copy(update={"step_s": 0.6}))
    base = study.base_model
    num_steps = min(base.max_steps, base.num_epochs * base.num_transcripts // BATCH_SIZE)
    assert slow_steps["base model"] - usual["base model"] == pytest.approx(0.3 * num_steps)
    assert slow_steps["kernels of base"] == usual["kernels of base"]
    slow_builds = seconds(study, PACE.model_copy(update={"compile_s": 2.0}))
    assert slow_builds["kernels of base"] > 1.3 * usual["kernels of base"]


def test_the_pace_is_measured(study):
    """Of a small model, and of one kernel at a time."""
    sizes = {"hidden_size": 64, "num_heads": 1, "num_layers": 1, "intermediate_size": 64}
    small = study.model_copy(update={"base_model": study.base_model.model_copy(update=sizes)})
    pace = measure_pace(small, 1)
    assert pace.step_s > 0 and pace.compile_s > 0


def test_what_is_there_is_done_and_a_finished_study_says_nothing(study, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "measure_pace", lambda study, num_cores: PACE)
    study = study.model_copy(update={"results": str(tmp_path)})
    (tmp_path / "tasks.parquet").touch()
    lines = forecast_text(study, 2).splitlines()
    assert "0.3 s" in lines[0]
    assert next(line for line in lines if "tasks" in line).split()[-1] == "done"
    assert lines[-1].split()[0] == "together" and "two at a time" not in lines[-1]
    beside = forecast_text(study, 2, side_by_side=2).splitlines()[-1]
    assert "two at a time" in beside and float(beside.split()[1]) < float(lines[-1].split()[1])
    (tmp_path / "report.html").touch()
    assert forecast_text(study, 2) == ""
