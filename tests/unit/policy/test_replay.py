"""Recordings as policies: our own turns, JSONL, and KernelBench's folder of kernels."""

import json
import os
import sys

import pytest
from core_fixtures import make_turn

from kevin.core.config import PolicyConfig
from kevin.core.dialogue import parse_completion
from kevin.core.errors import DataError, PolicyError
from kevin.core.files import write_turns
from kevin.core.types import Message, Outcome
from kevin.policy.interface import Request, Sampling, request_seed
from kevin.policy.load import load_policy, policy_identity
from kevin.policy.replay import read_jsonl

SAMPLING = Sampling(max_tokens=10)


def load(path):
    return load_policy("recorded", PolicyConfig(backend="replay", model=str(path)))


def ask(task_id, trajectory=0, turn=1):
    conversation = (Message(role="user", content="whatever"),)
    return Request(conversation=conversation, task_id=task_id, trajectory=trajectory, turn=turn)


def texts(policy, *requests):
    return [c and c.text for c in policy.complete(requests, SAMPLING)]


def test_turns_of_ours_come_back_with_their_counts(tmp_path):
    nothing = {"kernel": None, "outcome": Outcome.PARSE_ERROR, "speedup": None, "finish_reason": "length"}
    turns = [
        make_turn(task_id="a", trajectory=k, turn=n, completion=f"{k}{n}", num_prompt_tokens=k,
                  num_completion_tokens=n, **nothing)
        for k in range(2)
        for n in (1, 2)
    ]  # fmt: skip
    write_turns(tmp_path / "turns.parquet", turns, {})
    policy = load(tmp_path / "turns.parquet")
    assert texts(policy, ask("a", 1, 2), ask("a", 0, 1)) == ["12", "01"]
    completion = policy.complete([ask("a", 1, 2)], SAMPLING)[0]
    assert (completion.num_prompt_tokens, completion.num_completion_tokens) == (1, 2)
    assert completion.finish_reason == "length"


def test_jsonl_and_the_end_of_a_recording(tmp_path, caplog):
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps({"task_id": "a", "trajectory": 0, "turn": 1, "completion": "hello"}) + "\n\n")
    seen = {}
    policy = load(path)
    completions = policy.complete([ask("a"), ask("a", 0, 2), ask("b")], SAMPLING, seen.__setitem__)
    assert [c and c.text for c in completions] == ["hello", None, None]
    assert list(seen) == [0]
    assert completions[0].num_completion_tokens == 2
    assert completions[0].num_prompt_tokens == policy.count_tokens(ask("a").conversation)
    assert "2 of 3 answers are not recorded" in caplog.text
    assert policy.complete([], SAMPLING) == []


def test_a_recording_with_a_mark_odd_line_ends_and_half_a_surrogate_pair(tmp_path):
    path = tmp_path / "r.jsonl"
    rows = [
        {"task_id": "a", "trajectory": t, "turn": 1, "completion": c} for t, c in enumerate(["x\u2028\u0085y", "z"])
    ]
    raw = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_text(raw.replace('"z"', '"z\\ud83d"'), encoding="utf-8-sig")
    assert texts(load(path), ask("a", 0), ask("a", 1)) == ["x\u2028\u0085y", "z?"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", " holds no completion"),
        ("{oops\n", ", line 1: expected"),
        ('\n{"task_id": "a"}\n', ", line 2: expected .*: trajectory: Field required"),
        ('{"task_id": "a", "trajectory": 0, "turn": 0, "completion": "x"}\n', ", line 1: expected .*: turn: "),
        ("[" * 100_000, ", line 1: expected .*: maximum recursion depth"),
        ('{"task_id": "a", "turn": ' + "1" * 5000 + "}", ", line 1: expected .*: Exceeds the limit"),
        ('{"trajectory": NaN, "task_id": "a", "turn": 1, "completion": "x"}', ": trajectory: .*valid integer"),
        ('{"task_id": "a", "trajectory": 0, "turn": 1, "completion": null}', ": completion: .*valid string"),
        ('{"task_id": "a", "trajectory": true, "turn": 1, "completion": "x"}', ": trajectory: .*valid integer"),
        ('{"task_id": "a", "turn": 1, "turn": 2}', ", line 1: expected .*: turn is set a second time"),
        (
            '{"task_id": "a", "trajectory": 0, "turn": 1, "completion": "x", "num_prompt_tokens": -5}',
            ": num_prompt_tokens: ",
        ),
        ('{"task_id": "a", "trajectory": 0, "turn": 2, "completion": "x"}', "turn 2 is recorded, and turn 1 is not"),
        ('{"task_id": "a", "traj', ", line 1: expected .*: Unterminated string"),
    ],
)
def test_what_is_no_recording_is_named_with_its_line(tmp_path, content, said):
    path = tmp_path / "r.jsonl"
    path.write_text(content)
    with pytest.raises(DataError, match=rf"r\.jsonl.*{said}"):
        load(path)


@pytest.mark.parametrize("source", ["x = 'é'\n", '"""As in\n```\nx\n```\n"""\nx = 1\n', "# </think>\nx = 1\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
def test_a_kernelbench_file_comes_back_as_it_is(tmp_path, source, encoding):
    source = f"# coding: {encoding}\n{source}"
    (tmp_path / "level_1_problem_1_sample_0_kernel.py").write_text(source, encoding=encoding)
    [text] = texts(load(tmp_path), ask("kb/1/1"))
    assert parse_completion(text, "load_inline", "cuda").kernel.source == source


def test_counts_of_tokens_may_be_written_as_decimals(tmp_path):
    """As pandas does where one is missing."""
    line = '{"task_id": "a", "trajectory": 0, "turn": 1, "completion": "x", "num_prompt_tokens": 12.0}'
    (tmp_path / "r.jsonl").write_text(f"{line}\n")
    assert [r.num_prompt_tokens for r in read_jsonl(tmp_path / "r.jsonl")] == [12]


def test_a_kernelbench_folder(tmp_path):
    run = tmp_path / "runs" / "mine"
    run.mkdir(parents=True)
    (run / "level_1_problem_40_sample_0_kernel.py").write_text("class ModelNew: ...\n")
    (run / "level_2_problem_7_sample_3_kernel.py").write_text("import torch\n")
    (run / "eval_results.json").write_text("{}")
    policy = load(tmp_path / "runs")
    first, second, none = texts(policy, ask("kb/1/40"), ask("kb/2/7", 3), ask("kb/2/7", 0))
    assert parse_completion(first, "load_inline", "cuda").kernel.source == "class ModelNew: ...\n"
    assert parse_completion(second, "load_inline", "cuda").kernel.source == "import torch\n"
    assert none is None


def test_two_runs_in_one_folder_are_ambiguous(tmp_path):
    for run in ("a", "b"):
        (tmp_path / run).mkdir()
        (tmp_path / run / "level_1_problem_1_sample_0_kernel.py").write_text("x = 1\n")
    with pytest.raises(DataError, match="kb/1/1, trajectory 0, turn 1 is recorded twice"):
        load(tmp_path)


def test_missing_recordings(tmp_path):
    with pytest.raises(DataError, match="no recording"):
        load(tmp_path / "none.jsonl")
    with pytest.raises(DataError, match="no file named level_"):
        load(tmp_path)


def test_a_recording_of_other_tasks(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps({"task_id": "a", "trajectory": 0, "turn": 1, "completion": "hello"}))
    with pytest.raises(DataError, match=r"none of the tasks asked for \(it has a; asked for were kb/1/1"):
        load(path).complete([ask("kb/1/1")], SAMPLING)


def test_the_identity_follows_the_recording_and_not_its_time(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_text("a")
    config = PolicyConfig(backend="replay", model=str(path))
    before = policy_identity(config)
    os.utime(path, (0, 0))
    assert policy_identity(config) == before
    path.write_text("b")
    assert policy_identity(config)["files"].keys() == before["files"].keys() == {"r.jsonl"}
    assert policy_identity(config) != before


def test_where_an_endpoint_is_is_no_part_of_what_answers():
    one = PolicyConfig(backend="openai", model="m", base_url="http://localhost:8000/v1", seed_of="x", label="l")
    other = PolicyConfig(backend="openai", model="m", base_url="http://gpu7:9000/v1", max_concurrency=3, timeout_s=5)
    assert policy_identity(one) == policy_identity(other)
    assert policy_identity(one) != policy_identity(other.model_copy(update={"model": "n"}))


def test_a_missing_vllm_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(PolicyError, match=r"vllm cannot be imported.*pip install 'kevin-study\[gpu\]'.*backend"):
        load_policy("big", PolicyConfig(backend="vllm", model="Qwen/QwQ-32B"))


def test_every_turn_has_its_own_seed():
    requests = [ask(t, k, n) for t in ("a", "b") for k in range(4) for n in range(1, 4)]
    seeds = [request_seed(SAMPLING, r) for r in requests]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= s < 2**31 for s in seeds)
    assert seeds == [request_seed(SAMPLING, r) for r in requests]
    assert seeds[0] != request_seed(SAMPLING.model_copy(update={"seed": 1}), requests[0])
