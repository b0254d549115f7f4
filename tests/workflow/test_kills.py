"""Every stage, killed with every signal, at moments drawn at random, is silent or says one sentence, leaves no process
behind, loses no verdict, and goes on when it is started again.

The first thing that a command does is to watch for signals: what arrives while Python itself starts is Python's to
answer, and is left out here.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import yaml

from kevin.cli.supervisor import SAID
from kevin.core.files import read_turns

from .conftest import MICRO, ROOT

pytestmark = pytest.mark.slow

KEVIN = Path(sys.executable).with_name("kevin")
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGKILL: -signal.SIGKILL}
TINY = {
    "policies": {"base": {"model": "base"}, "recorded": {"backend": "replay", "model": "recorded.jsonl"}},
    "rollout": {"max_prompt_tokens": 4096, "max_response_tokens": 8, "num_trajectories": 1, "num_turns": 2},
    "ceiling_kernels": 2,
    "train": {
        "num_steps": 2,
        "tasks_per_step": 2,
        "num_trajectories": 2,
        "num_turns": 1,
        "micro_batch_size": 2,
        "stop_nothing_correct": None,
    },
}
TASKS, STORE = ("--tasks", "tasks.parquet"), ("--store", "store")
LEVEL1 = (*TASKS, "--split", "level1")
STAGES: dict[str, tuple[str, ...]] = {
    "tasks": ("tasks", "build", "--out", "again.parquet"),
    "base-model": ("base-model", "--out", "base_model"),
    "baselines": ("baselines", *TASKS, "--out", "baselines.parquet"),
    "rollout": ("rollout", *LEVEL1, "--policy", "recorded", *STORE, "--out", "rollout/turns.parquet"),
    "ceiling": ("ceiling", *LEVEL1, *STORE, "--out", "ceiling/turns.parquet"),
    "train": ("train", "--run", "rl_multi", *TASKS, *STORE, "--out", "train"),
    "export-policy": ("export-policy", "--run-dir", "train", "--out", "policy"),
    "score": ("score", "--turns", "ceiling/turns.parquet", *LEVEL1, "--policy", "ceiling", "--out", "scores.parquet"),
    "table": ("table", "level1", "--scores", "scores.parquet", "--out", "level1.csv"),
    "report": ("report", *TASKS, "--out", "report.html"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tasks, a model of a few tokens, recorded answers of the kernel writer."""
    from train_fixtures import save_model

    from kevin.core.config import load_study
    from kevin.core.files import write_tasks
    from kevin.tasks.build import build_tasks

    from .test_micro import record_answers

    path = tmp_path_factory.mktemp("kills")
    (path / "tmp").mkdir()
    (path / "tiny.yaml").write_text(yaml.safe_dump(TINY))
    write_tasks(path / "tasks.parquet", build_tasks(load_study([ROOT / "config/config.yaml", MICRO])), {})
    record_answers(path / "tasks.parquet", path / "recorded.jsonl")
    save_model(path / "base")
    return path


def start(folder: Path, stage: str) -> subprocess.Popen[str]:
    """In a process group of its own, which Ctrl-C on a terminal would reach as a whole."""
    configs = [a for c in (ROOT / "config/config.yaml", MICRO, "tiny.yaml") for a in ("--config", str(c))]
    return subprocess.Popen(
        [KEVIN, *STAGES[stage], *(configs if stage != "export-policy" else [])],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(folder / "tmp"), "KEVIN_TEST_KILLS": str(folder)},
    )


def below(folder: Path) -> list[psutil.Process]:
    """Everything that was started here and is alive, whoever its parent is by now, but for what hides in a sandbox."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("KEVIN_TEST_KILLS") == str(folder):
                found.append(process)
        except psutil.Error:
            continue
    return found


def wait_for(run: subprocess.Popen[str], ready: Callable[[], bool], timeout_s: float = 600) -> bool:
    """Returns False when the command has ended before."""
    deadline = time.monotonic() + timeout_s
    while not ready():
        if run.poll() is not None:
            return False
        assert time.monotonic() < deadline, "it did not get as far as this"
        time.sleep(0.002)
    return True


@pytest.fixture(autouse=True)
def _nothing_stays(folder: Path) -> Iterator[None]:
    yield
    for process in below(folder):  # of a test that failed
        process.kill()


def children(run: subprocess.Popen[str]) -> list[psutil.Process]:
    try:
        return psutil.Process(run.pid).children(recursive=True)
    except psutil.Error:
        return []


def verdicts(folder: Path) -> dict[Path, tuple[int, int]]:
    found = (folder / "store").glob("??/*.json")
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in found}


def stop(run: subprocess.Popen[str], number: signal.Signals, *, to_group: bool, twice: bool) -> None:
    for _ in range(2 if twice else 1):
        try:
            (os.killpg if to_group else os.kill)(run.pid, number)
        except ProcessLookupError:
            return


def check_stopped(
    folder: Path, run: subprocess.Popen[str], number: signal.Signals, started: list[psutil.Process]
) -> str:
    """Returns what it said before it was stopped."""
    said, _ = run.communicate(timeout=60)
    grace_s = 10 if number is signal.SIGKILL else 0  # of those who see their parent's end themselves
    deadline = time.monotonic() + grace_s
    while (left := [p for p in {*started, *below(folder)} if is_at_work(p)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []
    assert run.returncode == CODES[number], said
    sentence = f"kevin: {SAID[number]}\n" if number in SAID else ""
    assert said.endswith(sentence)
    rest = said.removesuffix(sentence)
    for word in ("Traceback", "internal error", "kevin: ", "Warning", "Exception"):
        assert word not in rest, said
    return rest


def is_at_work(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


BRIEF = ("export-policy", "score", "table", "report")
"""Done within a second, or told within one that their files are missing."""
RNG = random.Random("kevin kills, 1")
EARLY = [
    (
        stage,
        RNG.choice(list(CODES)),
        RNG.uniform(0.0, 0.1 if stage in BRIEF else 1.0),
        RNG.random() < 0.5,
        RNG.random() < 0.5,
    )
    for stage in STAGES
]


@pytest.mark.parametrize(("stage", "number", "moment", "to_group", "twice"), EARLY, ids=[e[0] for e in EARLY])
def test_in_its_first_second(
    folder: Path, stage: str, number: signal.Signals, moment: float, to_group: bool, twice: bool
) -> None:
    run = start(folder, stage)
    assert wait_for(run, lambda: bool(children(run)))
    time.sleep(moment)
    started = children(run)
    stop(run, number, to_group=to_group, twice=twice)
    check_stopped(folder, run, number, started)


AT_WORK = [
    ("ceiling", signal.SIGINT, True, True),
    ("ceiling", signal.SIGTERM, True, False),
    ("rollout", signal.SIGKILL, False, False),
    ("rollout", signal.SIGTERM, False, True),
]


@pytest.mark.parametrize("stage", ["ceiling", "rollout"])
def test_at_work_and_again_until_it_is_done(folder: Path, stage: str) -> None:
    """Once as its workers start, then in the middle of judging; the third start completes."""
    for (_, number, to_group, twice), num_more in zip((a for a in AT_WORK if a[0] == stage), (0, 1), strict=True):
        before = verdicts(folder)
        run = start(folder, stage)

        def is_at_it(run: subprocess.Popen[str] = run, num: int = len(before) + num_more, more: int = num_more) -> bool:
            return len(verdicts(folder)) >= num if more else len(children(run)) > 2

        assert wait_for(run, is_at_it), run.communicate()[0]
        time.sleep(RNG.uniform(0.0, 0.3))
        started = children(run)
        stop(run, number, to_group=to_group, twice=twice)
        check_stopped(folder, run, number, started)
        after = verdicts(folder)
        assert {path: after.get(path) for path in before} == before
    run = start(folder, stage)
    said, _ = run.communicate(timeout=600)
    assert run.returncode == 0, said
    done = verdicts(folder)
    assert {path: done.get(path) for path in after} == after
    stayed = [path.name for path in (folder / "tmp").iterdir() if not path.name.endswith(".lock")]
    assert stayed == [], "temporary folders stayed"  # a lock that all judges of a user share stays
    assert [p for p in (folder / "store").rglob("*") if p.name.startswith((".", "pool-"))] == []
    turns, _ = read_turns(folder / stage / "turns.parquet")
    assert len(turns) == 4 and all(turn.outcome is not None for turn in turns)
