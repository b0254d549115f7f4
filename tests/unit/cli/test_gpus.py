"""Jobs side by side each see a GPU of their own."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from kevin.cli import gpus
from kevin.core.config import load_study
from kevin.core.errors import DeviceError
from kevin.core.provenance import SIDE_BY_SIDE, jobs_side_by_side

ROOT = Path(__file__).parents[3]
JOB = """
import os, sys
from pathlib import Path
from kevin.cli.gpus import claim_gpus
claim_gpus(int(sys.argv[1]), Path(sys.argv[2]))
print(os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
sys.stdin.read()
"""


class Job:
    """A process that claims GPUs, and ends when it is told to."""

    def __init__(self, num: int, folder: Path, visible: str = "0,1", side_by_side: str = "2") -> None:
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": visible, SIDE_BY_SIDE: side_by_side}
        self._process = subprocess.Popen(
            [sys.executable, "-c", JOB, str(num), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    @property
    def waits(self) -> bool:
        assert self._process.stdout is not None
        return not select.select([self._process.stdout], [], [], 1.0)[0]

    @property
    def sees(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def end(self) -> None:
        self._process.communicate()


def test_two_jobs_have_different_gpus_and_a_third_waits_for_one(tmp_path: Path) -> None:
    first, second = Job(1, tmp_path), Job(1, tmp_path)
    assert {first.sees, second.sees} == {"0", "1"}

    third = Job(1, tmp_path)
    assert third.waits
    second.end()
    first_sees = third.sees
    assert first_sees in ("0", "1")
    first.end()
    third.end()


def test_a_job_that_wants_both_waits_until_both_are_free(tmp_path: Path) -> None:
    one = Job(1, tmp_path)
    assert one.sees == "0"

    both = Job(2, tmp_path)
    assert both.sees == "0,1"  # as many as there are: nothing to choose
    both.end()
    two_of_three = Job(2, tmp_path, visible="0,1,2")
    assert two_of_three.sees == "1,2"
    another = Job(2, tmp_path, visible="0,1,2")
    assert another.waits
    one.end()
    two_of_three.end()
    assert another.sees == "0,1"
    another.end()


@pytest.mark.parametrize(("visible", "side_by_side"), [("0,1", "0"), ("GPU-1a", "1")])
def test_nothing_is_claimed_without_a_workflow_or_a_choice(tmp_path: Path, visible: str, side_by_side: str) -> None:
    job = Job(1, tmp_path, visible, side_by_side)
    assert job.sees == visible
    job.end()
    assert not list(tmp_path.iterdir())


def test_gpus_are_counted_by_the_drivers_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text('#!/bin/sh\necho "GPU 0: NVIDIA H100 (UUID: GPU-a)"\necho "GPU 1: NVIDIA H100 (UUID: GPU-b)"\n')
    program.chmod(0o755)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert gpus.visible_gpus() == ["0", "1"]
    program.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpus.visible_gpus() == []


@pytest.mark.parametrize(("said", "jobs"), [(None, 1), ("", 1), ("0", 1), ("1", 1), ("4", 4), ("many", 1)])
def test_how_many_jobs_share_the_machine(monkeypatch: pytest.MonkeyPatch, said: str | None, jobs: int) -> None:
    monkeypatch.delenv(SIDE_BY_SIDE, raising=False)
    if said is not None:
        monkeypatch.setenv(SIDE_BY_SIDE, said)
    assert jobs_side_by_side() == jobs


def test_a_school_of_more_gpus_than_there_are_is_refused_before_anything_is_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    study = load_study([ROOT / "config/config.yaml"])
    training = study.base_model.pretraining.model_copy(update={"num_gpus": 3})
    asked = study.model_copy(update={"base_model": study.base_model.model_copy(update={"pretraining": training})})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with pytest.raises(DeviceError, match=r"num_gpus is 3, and 2 can be seen"):
        gpus.claim_school_gpus(asked)
    gpus.claim_school_gpus(study)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # the CPU's school
    gpus.claim_school_gpus(asked)
