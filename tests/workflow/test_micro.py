"""A whole study, tiny but real: interrupted, killed, finished, and then left alone. Nothing in it is mocked."""

from __future__ import annotations

import html
import json
import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest
from cli_fixtures import kevin

from kevin.core.files import read_tasks, read_turns
from kevin.report.diff import holds_times
from kevin.workflow.captions import caption_key, read_captions
from kevin.writer.plan import render, sample_plan
from kevin.writer.transcripts import completion, summarise

from .conftest import MICRO, ROOT, Run, command
from .stored_study import REFERENCE, facts, stored

pytestmark = pytest.mark.slow

FIGURES = ("serial_scaling", "parallel_scaling", "serial_parallel_map", "fast_p", "speedup_distribution", "roofline",
           "outcomes", "turns", "layernorm_case_study")  # fmt: skip


def verdicts(folder: Path) -> dict[Path, tuple[int, int]]:
    """Files of the verdict store, with what would change if one were written again."""
    found = (folder / "results/store").glob("??/*.json")
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in found}


def stop_when(folder: Path, ready: Callable[[], bool], stop: signal.Signals) -> list[psutil.Process]:
    """Start the study and stop it as soon as ``ready``; returns the processes that it had.

    SIGINT goes to all of them, as Ctrl-C on a terminal does; SIGKILL to Snakemake alone.
    """
    with (folder / f"{stop.name}.log").open("w") as log:
        run = subprocess.Popen(
            command(folder, "--configfile", MICRO),
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    deadline = time.monotonic() + 900
    try:
        while not ready():
            assert run.poll() is None, (folder / f"{stop.name}.log").read_text()
            assert time.monotonic() < deadline, "the study did not get as far as this"
            time.sleep(0.05)
        started = psutil.Process(run.pid).children(recursive=True)
        assert started
        os.kill(run.pid, stop) if stop is signal.SIGKILL else os.killpg(run.pid, stop)
        assert run.wait(timeout=60) != 0
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
    return started


def still_running(processes: list[psutil.Process], timeout_s: float = 60) -> list[psutil.Process]:
    _, alive = psutil.wait_procs(processes, timeout=timeout_s)
    return [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]


def record_answers(tasks: Path, out: Path) -> None:
    """Answers of the kernel writer, faulty ones among them, for three trajectories of three turns."""
    rng = random.Random(0)
    rows = []
    for task in [*read_tasks(tasks, "level1"), *read_tasks(tasks, "level2")]:
        for trajectory in range(3):
            for turn in range(1, 4):
                plan = sample_plan(rng, task, "cpp")
                text = completion(rng, task, plan, render(task, plan), summarise(None, plan))
                rows.append({"task_id": task.id, "trajectory": trajectory, "turn": turn, "completion": text})
    out.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="module")
def study(folder: Path, snakemake: Run) -> Path:
    """The finished study: interrupted once, killed once, then run to the end."""
    results = folder / "results"
    run = snakemake("results/tasks.parquet", "--configfile", MICRO)
    assert run.returncode == 0, run.stdout + run.stderr
    record_answers(results / "tasks.parquet", folder / "recorded.jsonl")
    processes = stop_when(folder, lambda: len(verdicts(folder)) >= 2, signal.SIGINT)
    assert still_running(processes) == []

    interrupted = verdicts(folder)
    assert len(interrupted) >= 2
    processes = stop_when(folder, lambda: len(verdicts(folder)) >= len(interrupted) + 4, signal.SIGKILL)
    assert still_running(processes) == []

    killed = verdicts(folder)
    run = snakemake("--configfile", MICRO, timeout=900)
    assert run.returncode == 0, run.stdout + run.stderr
    finished = verdicts(folder)
    for before in (interrupted, killed):
        assert {path: finished.get(path) for path in before} == before, "a verdict was formed twice"
    return results


def test_every_file_is_there(study: Path) -> None:
    for name in FIGURES:
        for ending in ("png", "pdf", "csv"):
            assert (study / f"figures/{name}.{ending}").stat().st_size > 0
    of_policies = ("primary", "claims", "table1", "table2", "level1", "level2", "differences")
    for name in (*of_policies, "serial_parallel", "turns", "mended", "pass_at_k", "tasks"):
        assert not pd.read_csv(study / f"tables/{name}.csv").empty
        assert (study / f"tables/{name}.md").stat().st_size and (study / f"tables/{name}.tex").stat().st_size
    assert (study / "config.yaml").exists()


def test_rollouts_are_complete_and_every_verdict_is_in_the_store(study: Path) -> None:
    stored = {path.stem for path in verdicts(study.parent)}
    for name in ("base-level1", "base-level2", "recorded-level1", "recorded-level2"):
        turns, meta = read_turns(study / f"rollouts/{name}/turns.parquet")
        assert len({(t.task_id, t.trajectory) for t in turns}) == 6
        assert all(t.outcome is not None for t in turns)
        assert {t.verdict_key for t in turns if t.verdict_key} <= stored
        assert meta["policy"] == name.split("-")[0] and meta["config_digest"]
        assert not (study / f"rollouts/{name}/checkpoint").exists()


def test_recorded_kernels_were_judged_for_real(study: Path) -> None:
    turns = [t for n in (1, 2) for t in read_turns(study / f"rollouts/recorded-level{n}/turns.parquet")[0]]
    assert len(turns) == 2 * 2 * 3 * 3
    assert {"correct"} < {t.outcome for t in turns}
    assert all(t.speedup is not None and t.speedup > 0 for t in turns if t.outcome == "correct")


def test_the_ceiling_holds_correct_kernels(study: Path) -> None:
    turns, _ = read_turns(study / "rollouts/ceiling-level1/turns.parquet")
    assert any(t.speedup is not None for t in turns)


def test_the_tables_compare_base_model_and_ceiling(study: Path) -> None:
    for split in ("level1", "level2"):
        table = pd.read_csv(study / f"tables/{split}.csv")
        assert {"base", "recorded", "ceiling"} <= set(table["policy"])


def test_the_study_is_the_one_that_is_stored(study: Path) -> None:
    then, now = stored(study), facts(study)
    for name in ("tasks", "transcripts", "recorded_kernels"):
        assert now[name] == then[name], f"{name}: changed; if that is meant, KEVIN_STORE_STUDY=1 stores the study again"
    assert now["base_model"]["num_steps"] == then["base_model"]["num_steps"]
    assert now["base_model"]["loss"] == pytest.approx(then["base_model"]["loss"], rel=0.01)
    others = {k: (v, now["recorded_outcomes"][k]) for k, v in then["recorded_outcomes"].items()}
    changed = {k: pair for k, pair in others.items() if pair[0] != pair[1]}
    assert len(changed) <= 1, changed  # one, where a sum's order decides at the edge of the tolerance


def test_the_stored_study_s_tables_are_found_again_but_for_times(study: Path) -> None:
    stored(study)
    run = kevin("diff", REFERENCE, study, "--anyway", "protocol", "--anyway", "configuration", "--json")
    assert run.returncode in (0, 1), run.stderr
    cells = json.loads(run.stdout)["cells"]
    assert [c for c in cells if c["reason"].endswith("in the stored ones alone, not in the results")] == []
    timeless = [c for c in cells if not holds_times(c["table"], c["column"])]
    assert [c for c in timeless if c["status"] == "differs"] == []
    assert len([c for c in timeless if c["status"] == "agrees"]) > 100


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


def test_snakemake_s_own_report_holds_every_table_and_figure(study: Path, snakemake: Run, folder: Path) -> None:
    run = snakemake("--configfile", MICRO, "--report", folder / "snakemake.html")
    assert run.returncode == 0, run.stdout + run.stderr
    page = (folder / "snakemake.html").read_text()
    shown, categories = (reported(page, name) for name in ("results", "categories"))
    files = {str(path.relative_to(folder)) for path in (*study.glob("tables/*.csv"), *study.glob("figures/*.png"))}
    assert shown.keys() == files | {"results/report.html"}
    captions = read_captions(ROOT / "rules/captions")
    for file, entry in shown.items():
        own = captions[caption_key(file)]
        text = re.sub(r"<[^>]+>", "", html.unescape(entry["caption"]))
        assert " ".join(text.split()) == own.text, f"{file} has not its own caption"
        assert entry["labels"] == {"result": own.title, "form": caption_key(file).split("/")[0].removesuffix("s")}
        assert file in categories[own.category]["Other"]


def reported(page: str, name: str) -> dict[str, dict[str, Any]]:
    """A variable of Snakemake's report."""
    found: dict[str, dict[str, Any]]
    found, _ = json.JSONDecoder().raw_decode(page, page.index(f"var {name} = {{") + len(f"var {name} = "))
    return found


@pytest.mark.parametrize(
    ("overlay", "again", "kept"),
    [
        ("report: {num_bootstrap: 101}", {"make_table", "write_report"}, {"run_rollouts", "train_base_model"}),
        (
            "rollout: {temperature: 0.5}",
            {"run_rollouts"},
            {"build_tasks", "train_base_model", "measure_baselines", "judge_ceiling"},
        ),
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
