"""A whole study, tiny but real: killed, continued, and then left alone. Nothing in it is mocked.

It is made once for all tests here, up to its scores, which takes most of a minute; baselines, ceilings, tables and
figures take longer and are for the slow ones.
"""

from __future__ import annotations

import html
import itertools
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

from kevin.core.config import load_study
from kevin.core.files import read_tasks, read_turns, write_tasks
from kevin.report.captions import caption_key, captions
from kevin.report.diff import holds_times
from kevin.tasks.build import build_tasks
from kevin.writer.plan import render, sample_plan
from kevin.writer.transcripts import completion
from kevin.writer.ways import first_turn

from .conftest import MICRO, ROOT, Run, command
from .stored_study import REFERENCE, facts, stored

SCORED = ("base-level1", "recorded-level1", "recorded-level2")
TARGETS = tuple(f"results/scores/{name}.parquet" for name in SCORED)
"""What every kind of stage that trains or judges is made for, but for baselines and ceilings."""
FIGURES = ("serial_scaling", "parallel_scaling", "serial_parallel_map", "fast_p", "roofline", "outcomes",
           "layernorm_case_study")  # fmt: skip


def verdicts(folder: Path) -> dict[Path, tuple[int, int]]:
    """Files of the verdict store, with what would change if one were written again."""
    found = (folder / "results/store").glob("??/*.json")
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in found}


def stop_when(
    folder: Path, ready: Callable[[], bool], stop: signal.Signals, targets: tuple[str, ...] = ()
) -> list[psutil.Process]:
    """Start the study and stop it as soon as ``ready``; returns the processes that it had.

    SIGINT goes to all of them, as Ctrl-C on a terminal does; SIGKILL to Snakemake alone.
    """
    with (folder / f"{stop.name}.log").open("w") as log:
        run = subprocess.Popen(
            command(folder, *targets, "--configfile", MICRO),
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
    """Answers of the kernel writer, faulty ones among them, for two trajectories of two turns."""
    rng = random.Random(0)
    rows = []
    asked = [*read_tasks(tasks, "level1"), *read_tasks(tasks, "level2")]
    for task, trajectory, turn in itertools.product(asked, range(2), (1, 2)):
        plan = sample_plan(rng, task, "cpp")
        text = completion(rng, task, first_turn(plan), render(task, plan))
        rows.append({"task_id": task.id, "trajectory": trajectory, "turn": turn, "completion": text})
    out.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="module")
def study(folder: Path, snakemake: Run) -> Path:
    """The study up to its scores: killed once, then continued."""
    tasks = build_tasks(load_study([ROOT / "config/config.yaml", MICRO]))
    write_tasks(folder / "tasks.parquet", tasks, {})
    record_answers(folder / "tasks.parquet", folder / "recorded.jsonl")
    processes = stop_when(folder, lambda: len(verdicts(folder)) >= 4, signal.SIGKILL, TARGETS)
    assert still_running(processes) == []
    killed = verdicts(folder)
    run = snakemake(*TARGETS, "--configfile", MICRO, timeout=900)
    assert run.returncode == 0, run.stdout + run.stderr
    finished = verdicts(folder)
    assert {path: finished.get(path) for path in killed} == killed, "a verdict was formed twice"
    return folder / "results"


@pytest.fixture(scope="module")
def whole(study: Path, folder: Path, snakemake: Run) -> Path:
    """The study with all that is made of it: interrupted once, then finished."""
    before = verdicts(folder)
    processes = stop_when(folder, lambda: len(verdicts(folder)) > len(before), signal.SIGINT)
    assert still_running(processes) == []
    interrupted = verdicts(folder)
    run = snakemake("--configfile", MICRO, timeout=900)
    assert run.returncode == 0, run.stdout + run.stderr
    finished = verdicts(folder)
    assert {path: finished.get(path) for path in interrupted} == interrupted, "a verdict was formed twice"
    return study


@pytest.mark.slow
def test_every_file_is_there(whole: Path) -> None:
    for name in FIGURES:
        for ending in ("png", "pdf", "csv"):
            assert (whole / f"figures/{name}.{ending}").stat().st_size > 0
    of_policies = ("primary", "claims", "table1", "table2", "level1", "level2", "differences")
    for name in (*of_policies, "serial_parallel", "turns", "mended", "pass_at_k", "tasks"):
        assert not pd.read_csv(whole / f"tables/{name}.csv").empty
        assert (whole / f"tables/{name}.md").stat().st_size and (whole / f"tables/{name}.tex").stat().st_size
    assert (whole / "config.yaml").exists()


def test_rollouts_are_complete_and_every_verdict_is_in_the_store(study: Path) -> None:
    stored = {path.stem for path in verdicts(study.parent)}
    for name in ("base-level1", "base-level2", "recorded-level1", "recorded-level2"):
        turns, meta = read_turns(study / f"rollouts/{name}/turns.parquet")
        assert len({(t.task_id, t.trajectory) for t in turns}) == 4
        assert all(t.outcome is not None for t in turns)
        assert {t.verdict_key for t in turns if t.verdict_key} <= stored
        assert meta["policy"] == name.split("-")[0] and meta["config_digest"]
        assert not (study / f"rollouts/{name}/checkpoint").exists()


def test_recorded_kernels_were_judged_for_real(study: Path) -> None:
    turns = [t for n in (1, 2) for t in read_turns(study / f"rollouts/recorded-level{n}/turns.parquet")[0]]
    assert len(turns) == 2 * 2 * 2 * 2
    assert {"correct"} < {t.outcome for t in turns}
    assert all(t.speedup is not None and t.speedup > 0 for t in turns if t.outcome == "correct")


@pytest.mark.slow
def test_the_ceiling_holds_correct_kernels(whole: Path) -> None:
    turns, _ = read_turns(whole / "rollouts/ceiling-level1/turns.parquet")
    assert any(t.speedup is not None for t in turns)


def test_the_study_is_the_one_that_is_stored(study: Path) -> None:
    then, now = stored(study), facts(study)
    for name in ("tasks", "transcripts", "recorded_kernels"):
        assert now[name] == then[name], f"{name}: changed; if that is meant, KEVIN_STORE_STUDY=1 stores the study again"
    assert now["base_model"]["num_steps"] == then["base_model"]["num_steps"]
    assert now["base_model"]["loss"] == pytest.approx(then["base_model"]["loss"], rel=0.01)
    others = {k: (v, now["recorded_outcomes"][k]) for k, v in then["recorded_outcomes"].items()}
    changed = {k: pair for k, pair in others.items() if pair[0] != pair[1]}
    assert len(changed) <= 1, changed  # one, where a sum's order decides at the edge of the tolerance


@pytest.mark.slow
def test_the_stored_study_s_tables_are_found_again_but_for_times(whole: Path) -> None:
    stored(whole)
    run = kevin("diff", REFERENCE, whole, "--anyway", "--json")
    assert run.returncode in (0, 1), run.stderr
    cells = json.loads(run.stdout)["cells"]
    assert [c for c in cells if c["reason"].endswith("in the stored ones alone, not in the results")] == []
    timeless = [c for c in cells if not holds_times(c["table"], c["column"])]
    assert [c for c in timeless if c["status"] == "differs"] == []
    assert len([c for c in timeless if c["status"] == "agrees"]) > 100


@pytest.mark.slow
def test_the_report_needs_no_other_file_and_no_network(whole: Path) -> None:
    page = (whole / "report.html").read_text()
    assert re.findall(r"""(?:src|href)=["'](?!#|data:)[^"']*\.(?:css|js|png|svg)""", page) == []
    for split in ("level1", "level2"):
        assert split in page


def test_a_second_run_does_nothing_and_says_so(study: Path, snakemake: Run) -> None:
    before = {path: path.stat().st_mtime_ns for path in study.rglob("*") if path.is_file()}
    run = snakemake(*TARGETS, "--configfile", MICRO)
    assert run.returncode == 0
    assert "Nothing to be done" in run.stdout + run.stderr
    assert {path: path.stat().st_mtime_ns for path in study.rglob("*") if path.is_file()} == before


@pytest.mark.slow
def test_snakemake_s_own_report_holds_every_table_and_figure(whole: Path, snakemake: Run, folder: Path) -> None:
    run = snakemake("--configfile", MICRO, "--report", folder / "snakemake.html")
    assert run.returncode == 0, run.stdout + run.stderr
    page = (folder / "snakemake.html").read_text()
    shown, categories = (reported(page, name) for name in ("results", "categories"))
    files = {str(path.relative_to(folder)) for path in (*whole.glob("tables/*.csv"), *whole.glob("figures/*.png"))}
    assert shown.keys() == files | {"results/report.html"}
    for file, entry in shown.items():
        own = captions()[caption_key(file)]
        text = re.sub(r"<[^>]+>", "", html.unescape(entry["caption"]))
        assert " ".join(text.split()) == own.text, f"{file} has not its own caption"
        assert entry["labels"] == {"result": own.title, "form": caption_key(file).split("/")[0].removesuffix("s")}
        assert file in categories[own.category]["Other"]


def reported(page: str, name: str) -> dict[str, dict[str, Any]]:
    """A variable of Snakemake's report."""
    found: dict[str, dict[str, Any]]
    found, _ = json.JSONDecoder().raw_decode(page, page.index(f"var {name} = {{") + len(f"var {name} = "))
    return found


def repeated(snakemake: Run, folder: Path, overlay: str, targets: tuple[str, ...] = ()) -> set[str]:
    """Rules that run again with another setting."""
    path = folder / "more.yaml"
    path.write_text(overlay)
    run = snakemake(*targets, "--dry-run", "--configfile", MICRO, path)
    assert run.returncode == 0, run.stderr
    return set(re.findall(r"^(?:local)?rule (\w+):", run.stdout + run.stderr, re.MULTILINE))


@pytest.mark.parametrize(
    ("overlay", "again"),
    [
        ("report: {num_bootstrap: 101}", {"score_turns"}),
        ("rollout: {temperature: 0.5}", {"run_rollouts", "score_turns"}),
        ("judge: {atol: 1.0e-3}", {"check_base_model", "run_rollouts", "score_turns"}),
    ],
)
def test_a_changed_setting_repeats_what_depends_on_it(
    study: Path, snakemake: Run, tmp_path: Path, overlay: str, again: set[str]
) -> None:
    assert repeated(snakemake, tmp_path, overlay, TARGETS) == again


@pytest.mark.slow
def test_tables_are_made_again_without_what_they_are_made_of(whole: Path, snakemake: Run, tmp_path: Path) -> None:
    again = repeated(snakemake, tmp_path, "report: {num_bootstrap: 101}")
    assert {"make_table", "write_report"} <= again
    assert not {"run_rollouts", "train_base_model", "measure_baselines"} & again
    assert "measure_baselines" not in repeated(snakemake, tmp_path, "rollout: {temperature: 0.5}")
