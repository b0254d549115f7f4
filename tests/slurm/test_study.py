"""The study through `snakemake --profile slurm` on a real cluster: interrupted, robbed of a node, still the same."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from process_fixtures import until

from kevin.core.files import read_tasks, read_turns

from .conftest import STUDY, Cluster, clone_to, finish, start

pytestmark = pytest.mark.slurm

TARGETS = [
    *(f"results/tables/{name}.csv" for name in ("level1", "level2", "turns")),
    *(f"results/figures/{name}.png" for name in ("fast_p", "serial_scaling")),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clone_to(tmp_path_factory.mktemp("slurm-study") / "clone")


@pytest.fixture(scope="module")
def killed(cluster: Cluster, folder: Path) -> set[str]:
    """Ids of the jobs that a killed run leaves behind."""
    run = start(folder, *TARGETS, "--profile", "slurm", "--configfile", *STUDY, log="killed.log")
    try:
        until(lambda: cluster.running("train_base_model") is not None, "the first job runs")
    finally:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    left = {job for job, *_ in cluster.jobs()}
    assert left, (folder / "killed.log").read_text()
    return left


@pytest.fixture(scope="module")
def made_before() -> set[str]:
    """What was in the results when Ctrl-C came: the killed run's job may have ended before the next run ended it."""
    return set()


@pytest.fixture(scope="module")
def interrupted(cluster: Cluster, folder: Path, killed: set[str], made_before: set[str]) -> Path:
    """The study's second run, ended by Ctrl-C while a node worked."""
    run = start(folder, *TARGETS, "--profile", "slurm", "--configfile", *STUDY, log="interrupted.log")

    def own_job_runs() -> bool:
        assert run.poll() is None, (folder / "interrupted.log").read_text()[-6000:]
        return any(state == "R" and job not in killed for job, state, *_ in cluster.jobs())

    try:
        until(own_job_runs, "a job of the second run runs")
        assert not {job for job, state, *_ in cluster.jobs() if state != "CG"} & killed, "jobs of the killed run"
        made_before |= {path.name for path in (folder / "results").iterdir()}
        os.killpg(run.pid, signal.SIGINT)
        assert run.wait(timeout=60) != 0
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
    return folder


def test_jobs_of_a_killed_run_are_ended_by_the_next(interrupted: Path, killed: set[str], cluster: Cluster) -> None:
    assert not killed & {job for job, state, *_ in cluster.jobs() if state != "CG"}


def test_ctrl_c_leaves_nothing_in_the_queue(cluster: Cluster, interrupted: Path, made_before: set[str]) -> None:
    states = {state for _, state, *_ in cluster.jobs()}
    assert states <= {"CG"}, "a job still waits or runs"
    until(lambda: not cluster.jobs() and not cluster.steps(), "the cancelled jobs' processes have ended")
    assert (interrupted / "results/base_model").exists() == ("base_model" in made_before)


@pytest.fixture(scope="module")
def study(cluster: Cluster, interrupted: Path) -> Iterator[Path]:
    """The study made to its end, on what was left after Ctrl-C; the node that measures dies while it does."""
    run = start(interrupted, *TARGETS, "--profile", "slurm", "--configfile", *STUDY)
    victim: list[str] = []

    def measuring() -> bool:
        assert run.poll() is None, (interrupted / "run.log").read_text()[-6000:]
        victim[:] = filter(None, [cluster.running("measure_baselines")])
        return bool(victim)

    try:
        until(measuring, "the baselines are measured", timeout_s=300)
        cluster.kill_node(victim[0])
        finish(run, interrupted / "run.log", timeout=900)
        yield interrupted / "results"
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGINT)
            run.wait(timeout=60)
        if victim:
            cluster.start_node(victim[0])


def test_a_dead_node_costs_one_attempt(cluster: Cluster, study: Path) -> None:
    log = (study.parent / "run.log").read_text()
    assert "NODE_FAIL" in log
    assert log.count("Trying to restart") == 1
    assert not cluster.jobs()


def test_the_small_jobs_of_the_report_are_one(study: Path) -> None:
    submitted = re.findall(r"has been submitted with SLURM jobid (\d+)", (study.parent / "run.log").read_text())
    assert len(submitted) < 12
    assert all((study.parent / name).stat().st_size > 0 for name in TARGETS)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory, study: Path) -> Path:
    """The same study's answers, made on this machine from another clone."""
    folder = clone_to(tmp_path_factory.mktemp("local-study") / "clone", study.parent)
    answers = [f"results/rollouts/base-{split}/turns.parquet" for split in ("level1", "level2")]
    run = start(folder, *answers, "--configfile", *STUDY)
    finish(run, folder / "run.log", timeout=600)
    return folder / "results"


def test_models_tasks_and_answers_are_those_of_a_local_run(study: Path, local: Path) -> None:
    assert read_tasks(study / "tasks.parquet") == read_tasks(local / "tasks.parquet")
    weights = "base_model/model.safetensors"
    assert (study / weights).read_bytes() == (local / weights).read_bytes()
    for split in ("level1", "level2"):
        name = f"rollouts/base-{split}/turns.parquet"
        ours, theirs = ([(t.completion, t.outcome) for t in read_turns(at / name)[0]] for at in (study, local))
        assert ours == theirs


def test_a_second_run_submits_nothing(cluster: Cluster, study: Path) -> None:
    run = start(study.parent, *TARGETS, "--profile", "slurm", "--configfile", *STUDY, log="again.log")
    assert "Nothing to be done" in finish(run, study.parent / "again.log", timeout=60)
