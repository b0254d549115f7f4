"""What a user brings counts by its content: own tasks and recordings edited, touched, broken and repaired.

The folder of results has a name that a shell would take apart.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from kevin.core.files import read_turns
from kevin.tasks.ops import call, render_module

from .conftest import Run

RESULTS = "own results; it's $HOME"
TURNS = f"{RESULTS}/rollouts/mine-level1/turns.parquet"
OWN = {
    "results": RESULTS,
    "tasks": {
        "source": "kernelbench",
        "case_study": "kb/1/1",
        "num_eval_level2": 0,
        "kernelbench": {"path": "my-tasks", "levels": [1], "num_train_per_level": 1},
    },
    "policies": {"mine": {"backend": "replay", "model": "recorded.jsonl"}},
    "evaluate": ["mine"],
    "runs": {"rl_multi": {}},
    "rollout": {"num_trajectories": 1, "num_turns": 1},
}


def write_task(folder: Path, number: int, batch_size: int) -> Path:
    path = folder / "my-tasks/level1" / f"{number}_relu.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render_module([call("relu")], {"batch_size": batch_size, "dim": 4}))
    return path


def configure(folder: Path, **changes: object) -> Path:
    path = folder / "own.yaml"
    path.write_text(yaml.safe_dump({**OWN, **changes}))
    return path


def answer(folder: Path, text: str) -> Path:
    path = folder / "recorded.jsonl"
    path.write_text(json.dumps({"task_id": "kb/1/1", "trajectory": 0, "turn": 1, "completion": text}) + "\n")
    return path


@pytest.fixture(scope="module")
def own(folder: Path, snakemake: Run) -> Path:
    """A finished rollout of a recording on a task of the user's own."""
    for number in (1, 2):
        write_task(folder, number, number)
    answer(folder, "no kernel yet")
    run = snakemake(TURNS, "--configfile", configure(folder), timeout=900)
    assert run.returncode == 0, run.stdout + run.stderr
    return folder


def planned(snakemake: Run, folder: Path) -> set[str]:
    run = snakemake(TURNS, "--dry-run", "--configfile", folder / "own.yaml")
    assert run.returncode == 0, run.stdout + run.stderr
    return set(re.findall(r"^(?:local)?rule (\w+):", run.stdout + run.stderr, re.MULTILINE))


def said(run: subprocess.CompletedProcess[str]) -> str:
    return run.stdout + run.stderr


@pytest.mark.slow
def test_a_touched_file_and_another_address_repeat_nothing(own: Path, snakemake: Run) -> None:
    for path in (own / "recorded.jsonl", *(own / "my-tasks/level1").iterdir()):
        os.utime(path)
    policy = {"backend": "replay", "model": "recorded.jsonl", "base_url": "http://localhost:1", "timeout_s": 1}
    configure(own, policies={"mine": {**policy, "max_concurrency": 2, "label": "my own"}})
    assert planned(snakemake, own) == set()
    configure(own)


def test_an_edited_recording_is_replayed(own: Path, snakemake: Run) -> None:
    answer(own, "another answer")
    assert planned(snakemake, own) == {"run_rollouts"}
    answer(own, "no kernel yet")
    assert planned(snakemake, own) == set()


def test_an_edited_and_an_added_task_are_built(own: Path, snakemake: Run) -> None:
    write_task(own, 1, batch_size=7)
    assert planned(snakemake, own) == {"build_tasks", "run_rollouts"}
    write_task(own, 1, batch_size=1)
    assert planned(snakemake, own) == set()
    added = write_task(own, 3, batch_size=3)
    assert "build_tasks" in planned(snakemake, own)
    added.unlink()


@pytest.mark.slow
def test_a_task_that_cannot_be_used_stops_at_once_and_costs_nothing(own: Path, snakemake: Run) -> None:
    before = (own / TURNS).read_bytes()
    broken = own / "my-tasks/level1/3_broken.py"
    broken.write_text("import torch\nraise RuntimeError('not ready')\n")
    run = snakemake(TURNS, "--configfile", own / "own.yaml", timeout=900)
    assert run.returncode != 0
    assert "my-tasks/level1/3_broken.py: line 2: RuntimeError: not ready" in said(run)
    assert "build_tasks" in planned(snakemake, own), "what failed is not taken for done"
    assert (own / TURNS).read_bytes() == before
    broken.unlink()
    run = snakemake(TURNS, "--configfile", own / "own.yaml", timeout=900)
    assert run.returncode == 0, said(run)
    assert (own / TURNS).read_bytes() == before, "rolled out again for tasks that are the same"
    assert planned(snakemake, own) == set()


@pytest.mark.slow
def test_finished_answers_are_kept_beside_new_ones(own: Path, snakemake: Run) -> None:
    answer(own, "another answer")
    run = snakemake(TURNS, "--configfile", own / "own.yaml", timeout=900)
    assert run.returncode == 0, said(run)
    completions = [read_turns(own / TURNS)[0][0].completion]
    completions += [read_turns(file)[0][0].completion for file in (own / TURNS).parent.glob("finished.old-*/*.parquet")]
    assert completions == ["another answer", "no kernel yet"]
