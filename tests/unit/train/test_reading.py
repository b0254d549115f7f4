"""How a model reads modules: its restatement against the kernel writer's, of own tasks and of KernelBench's."""

from __future__ import annotations

import csv

import pytest
from cli_fixtures import kevin
from writer_fixtures import small_catalog, small_composed

from kevin.core import files
from kevin.core.types import Completion
from kevin.policy.replay import Recorded
from kevin.tasks.format import inspect_task
from kevin.train.reading import NOTHING, read_modules, restatement
from kevin.writer.restate import RIGHT

OTHERS = '''
import torch
from torch import nn

class Model(nn.Module):
    """Does something else, by its own account: a mean."""
    def forward(self, one, two):
        return one @ two

def get_inputs():
    return [torch.randn(4, 8), torch.randn(8, 3)]

def get_init_inputs():
    return []
'''


def answered(lines: list[str]) -> str:
    return "\n".join(["<think>", "Okay, this is computed:", *lines, "Math stays strict.", "</think>", "```cpp"])


class Says:
    """A policy that says what it is told to, by task."""

    def __init__(self, texts):
        self.texts, self.asked = texts, []

    def complete(self, requests, sampling, on_completion=None):
        assert sampling.temperature == 0 and {r.turn for r in requests} == {1}
        self.asked += [(r.task_id, sampling.max_tokens) for r in requests]
        texts = [self.texts[r.task_id] for r in requests]
        return [
            t and Completion(text=t, num_prompt_tokens=1, num_completion_tokens=1, finish_reason="length")
            for t in texts
        ]


@pytest.fixture(scope="module")
def tasks():
    return [*small_catalog()[:20], *small_composed(20)]


def test_right_wrong_and_missing_restatements_are_told_apart_in_the_tasks_order(tasks):
    texts = {t.id: answered(restatement(t)) for t in tasks}
    dropped, silent, gone = tasks[25], tasks[3], tasks[4]
    texts |= {dropped.id: answered(restatement(dropped)[:-1]), silent.id: "<think>\nHm.\n</think>", gone.id: None}
    seen = []
    policy = Says(texts)
    found = read_modules(policy, tasks, "cpp", seen.append)
    assert [r.task_id for r in found] == [t.id for t in tasks]
    assert sorted(r.task_id for r in seen) == sorted(r.task_id for r in found)
    wrong = {r.task_id: r.said for r in found if not r.right}
    assert wrong.keys() == {dropped.id, silent.id, gone.id}
    assert wrong[silent.id] == wrong[gone.id] == NOTHING
    assert wrong[dropped.id].startswith("It left out ")
    assert {r.said for r in found if r.right} == {RIGHT}
    room = dict(policy.asked)
    assert all(room[t.id] > sum(map(len, restatement(t))) for t in tasks)


def test_what_the_writer_does_not_know_is_left_out(tasks):
    stranger = tasks[0].model_copy(update={"id": "mine", "source": OTHERS, "ops": (), "origin": "user"})
    stranger = stranger.model_copy(update={"spec": inspect_task(OTHERS, "mine")})
    assert restatement(stranger) is None
    assert read_modules(Says({}), [stranger], "cpp") == []


def test_kernelbenchs_modules_are_restated_under_their_own_names(tasks):
    module = tasks[0].model_copy(update={"id": "kb/1/2", "source": OTHERS, "ops": (), "origin": "kernelbench"})
    module = module.model_copy(update={"spec": inspect_task(OTHERS, "kb/1/2")})
    assert restatement(module) == ["matmul of one (4, 8) with two (8, 3) -> out (4, 3)"]


def test_the_command_refuses_tasks_that_nobody_can_compare(tmp_path, tasks):
    stranger = tasks[0].model_copy(update={"id": "mine", "source": OTHERS, "ops": (), "origin": "user"})
    stranger = stranger.model_copy(update={"spec": inspect_task(OTHERS, "mine")})
    files.write_tasks(tmp_path / "tasks.parquet", [(stranger, "train")], {})
    run = kevin(
        "bench", "reading", "--model", tmp_path, "--tasks", tmp_path / "tasks.parquet", "--out", tmp_path / "o.csv"
    )
    assert run.returncode == 2 and "knows no task of split train" in run.stderr


def test_the_command_writes_a_row_a_task_and_a_line_a_level(tmp_path, tasks):
    """With a recording in place of a model."""
    chosen = [tasks[0], tasks[30]]
    files.write_tasks(tmp_path / "tasks.parquet", [(t, "level1") for t in chosen], {})
    said = [Recorded(task_id=t.id, trajectory=0, turn=1, completion=answered(restatement(t))) for t in chosen]
    (tmp_path / "said.jsonl").write_text("".join(f"{line.model_dump_json()}\n" for line in said))
    out = tmp_path / "reading.csv"
    run = kevin(
        *("bench", "reading", "--model", tmp_path / "said.jsonl", "--tasks", tmp_path / "tasks.parquet"),
        *("--split", "level1", "--backend", "replay", "--out", out),
    )
    assert run.returncode == 0, run.stderr
    rows = list(csv.DictReader(out.open()))
    assert [(r["task_id"], r["right"], r["said"]) for r in rows] == [(t.id, "True", RIGHT) for t in chosen]
    assert (
        "level 1: 1 of 1 modules read right" in run.stdout
        and "level 2: 1 of 1 modules read right, 0 but for" in run.stdout
    )
