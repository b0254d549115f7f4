"""What a step gets of a machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from workflow_fixtures import CONFIGS, study_of

from kevin.workflow import resources
from kevin.workflow.resources import SCALES, Machine


def machine_of(scale: str, cores: int | None, gpus: int, **sections: Any) -> Machine:
    return Machine(study_of(*([] if scale == "laptop" else [scale]), **sections), cores, gpus)


@pytest.fixture(autouse=True)
def _enough_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "MEMORY", 16e9)


@pytest.mark.parametrize(
    ("scale", "sections", "gpus", "side_by_side", "threads"),
    [
        ("laptop", {}, 1, 2, 4),
        ("laptop", {}, 4, 2, 4),
        ("laptop", {"judge": {"num_threads": 9}}, 1, 1, 9),
        ("laptop", {"pool": {"scheduler": "tcp://node:8786"}}, 1, 1, 9),
        ("laptop", {"policies": {"rl_multi": {"model": "some/other"}}}, 1, 1, 9),
        ("laptop", {"policies": {"rl_multi": {"backend": "replay", "model": "recorded.jsonl"}}}, 1, 2, 4),
        ("gpu", {}, 1, 1, 8),
        ("gpu", {}, 2, 2, 4),
        ("gpu", {"pool": {"device_workers": 2}}, 2, 1, 8),
        ("paper", {}, 8, 1, 8),
    ],
)
def test_jobs_of_one_gpu_share_the_cores_but_one_and_two_of_small_models_a_cpu(
    scale: str, sections: dict[str, Any], gpus: int, side_by_side: int, threads: int
) -> None:
    machine = machine_of(scale, 9, gpus, **sections)
    assert (machine.side_by_side, machine.threads) == (side_by_side, threads)


def test_without_a_number_of_cores_a_job_has_what_its_scale_needs() -> None:
    assert machine_of("gpu", None, 1).threads == SCALES["gpu"].cores
    assert machine_of("gpu", 1, 4).threads == 1
    assert [machine_of("laptop", cores, 1).side_by_side for cores in (None, 1, 2)] == [1, 1, 2]


def test_with_little_memory_a_laptops_jobs_run_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "MEMORY", 8e9)
    assert machine_of("laptop", 2, 1).side_by_side == 1


def test_gpus_are_asked_for_where_the_scale_has_any() -> None:
    assert [machine_of(scale, 9, 1).share(gpus=3)["gpu"] for scale in SCALES] == [0, 3, 3, 3]
    assert machine_of("gpu", 9, 1).share(gpus=1) == {
        "cpus_per_task": 16, "mem_mb": 64_000, "runtime": 240, "gpu": 1,
    }  # fmt: skip


def test_several_gpus_are_launched_together() -> None:
    started = {scale: machine_of(scale, 9, 1).launcher(Path("/a b")) for scale in SCALES}
    assert started == {
        "laptop": "",
        "gpu": "",
        "coder": "",
        "paper": "accelerate launch --config_file '/a b'/config/accelerate/zero3-8.yaml --no_python ",
    }
    assert (CONFIGS / "accelerate/zero3-8.yaml").exists()
