"""A whole study, tiny but real: interrupted, killed, finished, and then left alone. Nothing in it is mocked."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import psutil
import pytest

from kevin.core.files import read_turns

from .conftest import MICRO, Run, command

pytestmark = pytest.mark.slow

FIGURES = ("serial_scaling", "parallel_scaling", "fast_p", "outcomes", "layernorm_case_study")


def verdicts(folder: Path) -> dict[Path, tuple[int, int]]:
    """Files of the verdict store, with what would change if one were written again."""
    found = (folder / "results/store").glob("??/*.json")
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in found}


def stop_when(folder: Path, ready: Callable[[], bool], stop: signal.Signals) -> list[psutil.Process]:
    """Start the study, send ``stop`` to Snakemake alone as soon as ``ready``; returns the processes that it had."""
    with (folder / f"{stop.name}.log").open("w") as log:
        run = subprocess.Popen(
            command(folder, "--configfile", MICRO),
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    deadline = time.monotonic() + 180
    try:
        while not ready():
            assert run.poll() is None, (folder / f"{stop.name}.log").read_text()
            assert time.monotonic() < deadline, "the study did not get as far as this"
            time.sleep(0.05)
        started = psutil.Process(run.pid).children(recursive=True)
        assert started
        run.send_signal(stop)
        assert run.wait(timeout=60) != 0
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
    return started


def still_running(processes: list[psutil.Process], timeout_s: float = 30) -> list[psutil.Process]:
    _, alive = psutil.wait_procs(processes, timeout=timeout_s)
    return [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]


@pytest.fixture(scope="module")
def study(folder: Path, snakemake: Run) -> Path:
    """The finished study: interrupted once, killed once, then run to the end."""
    results = folder / "results"
    processes = stop_when(folder, lambda: len(verdicts(folder)) >= 2, signal.SIGINT)
    assert still_running(processes) == []

    interrupted = verdicts(folder)
    assert len(interrupted) >= 2
    rolling_out = results / "rollouts"
    processes = stop_when(
        folder,
        lambda: bool(list(rolling_out.glob("base-*/checkpoint/turn_001.turns.jsonl"))),
        signal.SIGKILL,
    )
    assert still_running(processes) == []

    killed = verdicts(folder)
    run = snakemake("--configfile", MICRO, timeout=400)
    assert run.returncode == 0, run.stdout + run.stderr
    finished = verdicts(folder)
    for before in (interrupted, killed):
        assert {path: finished.get(path) for path in before} == before, "a verdict was formed twice"
    return results


def test_every_file_is_there(study: Path) -> None:
    for name in FIGURES:
        for ending in ("png", "pdf", "csv"):
            assert (study / f"figures/{name}.{ending}").stat().st_size > 0
    for name in ("level1", "level2", "serial_parallel", "tasks"):
        assert not pd.read_csv(study / f"tables/{name}.csv").empty
    assert (study / "config.yaml").exists()


def test_rollouts_are_complete_and_every_verdict_is_in_the_store(study: Path) -> None:
    stored = {path.stem for path in verdicts(study.parent)}
    for split in ("level1", "level2"):
        turns, meta = read_turns(study / f"rollouts/base-{split}/turns.parquet")
        assert len({(t.task_id, t.trajectory) for t in turns}) == 4
        assert all(t.outcome is not None for t in turns)
        assert {t.verdict_key for t in turns if t.verdict_key} <= stored
        assert meta["policy"] == "base" and meta["config_digest"]
        assert not (study / f"rollouts/base-{split}/checkpoint").exists()


def test_the_ceiling_holds_correct_kernels(study: Path) -> None:
    turns, _ = read_turns(study / "rollouts/ceiling-level1/turns.parquet")
    assert any(t.speedup is not None for t in turns)


def test_the_tables_compare_base_model_and_ceiling(study: Path) -> None:
    for split in ("level1", "level2"):
        table = pd.read_csv(study / f"tables/{split}.csv")
        assert {"base", "ceiling"} <= set(table["policy"])


def test_the_report_needs_no_other_file_and_no_network(study: Path) -> None:
    page = (study / "report.html").read_text()
    assert re.findall(r"""(?:src|href)=["'](?!#|data:)[^"']*\.(?:css|js|png|svg)""", page) == []
    for split in ("level1", "level2"):
        assert split in page


def test_a_second_run_does_nothing_and_says_so(study: Path, snakemake: Run) -> None:
    before = {path: path.stat().st_mtime_ns for path in study.rglob("*") if path.is_file()}
    run = snakemake("--configfile", MICRO)
    assert run.returncode == 0
    assert "Nothing to be done" in run.stdout + run.stderr
    assert {path: path.stat().st_mtime_ns for path in study.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("overlay", "again", "kept"),
    [
        ("report: {num_bootstrap: 101}", {"make_table", "write_report"}, {"run_rollouts", "train_base_model"}),
        ("rollout: {temperature: 0.5}", {"run_rollouts"}, {"build_tasks", "measure_baselines", "judge_ceiling"}),
        ("judge: {atol: 1.0e-3}", {"run_rollouts", "judge_ceiling"}, {"train_base_model"}),
    ],
)
def test_a_changed_setting_repeats_what_depends_on_it(
    study: Path, snakemake: Run, tmp_path: Path, overlay: str, again: set[str], kept: set[str]
) -> None:
    path = tmp_path / "more.yaml"
    path.write_text(overlay)
    run = snakemake("--dry-run", "--configfile", MICRO, path)
    listed = set(re.findall(r"^(?:local)?rule (\w+):", run.stdout + run.stderr, re.MULTILINE))
    assert again <= listed
    assert not kept & listed


def test_two_runs_at_once_are_refused(study: Path, folder: Path, snakemake: Run) -> None:
    code = (
        "import fcntl, sys, time; f = open('.snakemake/running', 'a+'); fcntl.flock(f, fcntl.LOCK_EX); "
        "print('held', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen(["python3", "-c", code], cwd=folder, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        run = snakemake("--configfile", MICRO, "--forcerun", "make_table")
        assert run.returncode != 0
        assert "another snakemake" in run.stdout + run.stderr
    finally:
        holder.kill()
        holder.wait()
