"""`kevin write`: one module in, its best right kernel and the verdict of it out."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path

import pytest
from cli_fixtures import BROKEN, GOOD, REFERENCE, WRONG, kevin_here
from fake_pool import FakePool, verdict_of
from train_fixtures import save_model

from kevin.core.config import load_study
from kevin.core.files import read_turns
from kevin.core.types import Outcome
from kevin.judge.store import VerdictStore

FASTER = GOOD.replace("2.0f *", "2.0f  *")


class StoringPool(FakePool):
    """Right are kernels with the right factor; each verdict is stored, as a pool does."""

    def __init__(self, protocol, store_dir, config):
        super().__init__(protocol, store_dir, config)
        self.store = VerdictStore(store_dir)

    def judge(self, pairs, on_verdict=None, on_new=None):
        verdicts = []
        for task, kernel in pairs:
            verdict = verdict_of(task, kernel)
            if "2.0f" not in kernel.source:
                nothing = {"outcome": Outcome.INCORRECT, "timing": None, "reference_timing": None, "rounds": ()}
                verdict = verdict.model_copy(update=nothing)
            self.store.put(verdict)
            verdicts.append(verdict)
        return verdicts


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(REFERENCE)
    (tmp_path / "config.yaml").write_text(
        "policies: {base: {backend: replay, model: none.jsonl}}\n"
        "rollout: {num_trajectories: 2, num_turns: 2, max_prompt_tokens: 9999}\n"
    )
    return tmp_path


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kevin.judge.pool.judge_pool", types.SimpleNamespace(JudgePool=StoringPool))
    monkeypatch.setattr(FakePool, "opened", [])


def record(folder: Path, *kernels: str) -> Path:
    """Answers of two turns each, in order of the trajectories."""
    path = folder / "recorded.jsonl"
    lines = [
        {"task_id": "user/mine", "trajectory": i // 2, "turn": i % 2 + 1, "completion": f"```cpp\n{kernel}```\n"}
        for i, kernel in enumerate(kernels)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def write(folder: Path, *more: str | Path):
    return kevin_here("write", "mine.py", "--config", "config.yaml", *more, cwd=folder)


@pytest.mark.usefixtures("pool")
def test_the_fastest_right_kernel_is_written_with_its_verdict(folder: Path) -> None:
    record(folder, GOOD, WRONG + "// longer, and so faster, and wrong\n", FASTER, GOOD)
    run = write(folder, "--policy", "recorded.jsonl")
    assert run.returncode == 0, run.stderr
    assert (folder / "mine_kernel/kernel.cpp").read_text() == FASTER
    verdict = json.loads((folder / "mine_kernel/verdict.json").read_text())
    assert verdict["outcome"] == "correct" and verdict["speedup"] == len(FASTER.strip())
    assert "mine_kernel/kernel.cpp" in run.stdout and "3 correct, 1 incorrect" in run.stdout
    played = Path("mine_kernel", "work", "turns.parquet")
    turns, _ = read_turns(folder / played)
    assert [t.outcome for t in turns].count(Outcome.CORRECT) == 3
    again = write(folder, "--policy", str(played), "--out", "again", "--json")
    assert json.loads(again.stdout) == {
        "kernel": "again/kernel.cpp",
        "verdict": verdict,
        "outcomes": {"correct": 3, "incorrect": 1},
    }


@pytest.mark.usefixtures("pool")
def test_nothing_right_is_told_and_has_an_exit_code_of_its_own(folder: Path) -> None:
    record(folder, GOOD, "", WRONG, WRONG)
    assert write(folder, "--policy", "recorded.jsonl", "--trajectories", "1").returncode == 0
    record(folder, WRONG, "", WRONG, WRONG)
    run = write(folder, "--policy", "recorded.jsonl", "--json")
    assert run.returncode == 4 and "no kernel for mine.py was verified to be right" in run.stderr
    outcomes = {"incorrect": 3, "parse_error": 1}
    assert json.loads(run.stdout) == {"kernel": None, "verdict": None, "outcomes": outcomes}
    kept = {"kernel.old-1.cpp", "verdict.old-1.json"}
    assert {path.name for path in (folder / "mine_kernel").iterdir()} == {"work", *kept}, "it is of other answers"
    assert (folder / "mine_kernel/kernel.old-1.cpp").read_text() == GOOD and "kernel.old-1.cpp" in run.stderr


@pytest.mark.usefixtures("pool")
def test_a_model_is_asked_by_its_folder_on_the_terms_of_the_one_that_training_starts_from(folder: Path) -> None:
    save_model(folder / "model")
    (folder / "more.yaml").write_text(
        "policies: {base: {backend: transformers, dtype: bfloat16}}\n"
        "rollout: {max_prompt_tokens: 900, max_response_tokens: 8}\n"
    )
    run = write(folder, "--config", "more.yaml", "--policy", "model", "--turns", "1", "--json")
    assert run.returncode == 4, run.stderr
    assert sum(json.loads(run.stdout)["outcomes"].values()) == 2
    study = load_study([folder / "config.yaml", folder / "more.yaml"]).with_policy(str(folder / "model"))
    assert study.policies[str(folder / "model")].dtype == "bfloat16"


@pytest.mark.usefixtures("pool")
def test_what_was_finished_is_not_asked_for_again(folder: Path) -> None:
    record(folder, GOOD, GOOD, GOOD, GOOD)
    for _ in range(2):
        assert write(folder, "--policy", "recorded.jsonl").returncode == 0
    assert len(FakePool.opened) == 1


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("bsae", "no policy 'bsae' in the configuration, and no such file or folder; there are base;"),
        ("base", "no recording none.jsonl"),
        ("config.yaml", "config.yaml, line 1: expected {task_id, trajectory, turn, completion}"),
        (".", "is not a model folder (no config.json in it)"),
    ],
)
@pytest.mark.usefixtures("pool")
def test_a_policy_that_is_none_is_named(folder: Path, policy: str, said: str) -> None:
    run = write(folder, "--policy", policy)
    assert run.returncode == 2 and said in run.stderr and "Traceback" not in run.stderr, run.stderr


@pytest.mark.slow
def test_a_kernel_that_was_written_is_judged_for_real(folder: Path) -> None:
    """Judges in worker processes, which takes a while to start."""
    record(folder, BROKEN, GOOD, WRONG, WRONG)
    run = write(folder, "--policy", "recorded.jsonl", "--json")
    assert run.returncode == 0, run.stderr
    said = json.loads(run.stdout)
    assert said["verdict"]["outcome"] == "correct" and said["verdict"]["speedup"] > 0
    assert said["outcomes"] == {"incorrect": 2, "compile_error": 1, "correct": 1}
