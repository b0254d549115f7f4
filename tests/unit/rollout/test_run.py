"""Rollouts from files to files: a recorded policy, a judge that needs no compiler, and progress lines."""

import json
import sys
import types
from pathlib import Path

import pytest
from core_fixtures import SPEC, make_kernel, make_task
from fake_pool import FakePool

from kevin.core.config import SearchConfig, validate_study
from kevin.core.errors import ConfigError, DataError, HarnessError
from kevin.core.files import read_turns, write_tasks
from kevin.core.identity import STEP_VERSIONS
from kevin.core.types import Outcome
from kevin.rollout import run as run_module
from kevin.rollout.run import run_rollouts
from kevin.rollout.written import run_ceiling

IDS = ("l1/a", "l1/b")
TASKS = [make_task(t, spec=SPEC) for t in IDS]


@pytest.fixture
def pool(monkeypatch):
    monkeypatch.setitem(sys.modules, "kevin.judge.pool.judge_pool", types.SimpleNamespace(JudgePool=FakePool))
    monkeypatch.setattr(FakePool, "failures", {})
    monkeypatch.setattr(FakePool, "opened", [])
    return FakePool


@pytest.fixture
def study(tmp_path):
    lines = [
        {"task_id": t, "trajectory": k, "turn": n, "completion": f"```cpp\n{t} {k} {n}\n```\nSummary: s"}
        for t in IDS
        for k in range(3)
        for n in (1, 2)
    ]
    recording = tmp_path / "recorded.jsonl"
    recording.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return validate_study(
        {
            "results": str(tmp_path / "results"),
            "policies": {"base": {"backend": "replay", "model": str(recording)}},
            "rollout": {"num_trajectories": 3, "num_turns": 2, "max_prompt_tokens": 9999},
        },
        "test",
    )


@pytest.fixture
def tasks(tmp_path):
    path = tmp_path / "tasks.parquet"
    write_tasks(path, [(task, "level1") for task in TASKS], {})
    return path


@pytest.fixture
def out(tmp_path):
    return tmp_path / "results" / "rollouts" / "base-level1" / "turns.parquet"


def run_rollout(study, policy, split, tasks, out, **rest):
    run_rollouts(study, policy, [(split, out)], tasks, **rest)


def test_files_in_files_out(study, tasks, out, pool, tmp_path):
    run_rollout(study, "base", "level1", tasks, out)
    turns, meta = read_turns(out)
    assert [(t.task_id, t.trajectory, t.turn) for t in turns] == [
        (t, k, n) for t in IDS for k in range(3) for n in (1, 2)
    ]
    assert all(t.outcome is Outcome.CORRECT for t in turns)
    assert (meta["policy"], meta["split"], meta["config_digest"]) == ("base", "level1", study.digest)
    timing = [json.loads(line) for line in (out.parent / "timing.jsonl").read_text().splitlines()]
    assert [(t["turn"], t["num_kernels"]) for t in timing] == [(1, 6), (2, 6)]
    assert sorted(p.name for p in out.parent.iterdir()) == ["finished", "timing.jsonl", "turns.parquet"]
    assert pool.opened == [(study.judge, tmp_path / "results" / "store", study.pool)]


def test_splits_share_one_engine_and_one_judge(study, tasks, out, pool, tmp_path, monkeypatch):
    write_tasks(tasks, list(zip(TASKS, ("level1", "level2"), strict=True)), {})
    loaded, real = [], run_module.load_policy
    monkeypatch.setattr(run_module, "load_policy", lambda *args: loaded.append(args[0]) or real(*args))
    second = out.parents[1] / "base-level2" / "turns.parquet"
    run_rollouts(study, "base", [("level1", out), ("level2", second)], tasks)
    assert loaded == ["base"] and len(pool.opened) == 1
    for path, task, split in ((out, "l1/a", "level1"), (second, "l1/b", "level2")):
        turns, meta = read_turns(path)
        assert {t.task_id for t in turns} == {task} and len(turns) == 6 and meta["split"] == split
        timings = [json.loads(line) for line in (path.parent / "timing.jsonl").read_text().splitlines()]
        assert [(t["num_answers"], t["share"]) for t in timings] == [(6, 0.5)] * 2, "both were played together"
    assert read_turns(second)[1]["turn_seconds"] == read_turns(out)[1]["turn_seconds"], "half each"
    assert not list(out.parents[1].glob("*/checkpoint"))
    before = second.read_bytes()
    alone = tmp_path / "alone" / "base-level2" / "turns.parquet"
    run_rollout(study, "base", "level2", tasks, alone)
    assert read_turns(alone)[0] == read_turns(second)[0]
    second.unlink()
    run_rollouts(study, "base", [("level1", out), ("level2", second)], tasks)
    assert second.read_bytes() == before and len(loaded) == 2, "both were finished"
    pool.failures["l1/b 0 1"] = 2
    changed = study.model_copy(update={"rollout": study.rollout.model_copy(update={"num_trajectories": 2})})
    with pytest.raises(HarnessError, match="of base on level2 have no verdict"):
        run_rollouts(changed, "base", [("level1", out), ("level2", second)], tasks)
    assert len(read_turns(out)[0]) == 4, "the first is written"
    first = out.stat().st_ino
    pool.failures.clear()
    run_rollouts(changed, "base", [("level1", out), ("level2", second)], tasks)
    assert len(read_turns(second)[0]) == 4 and out.stat().st_ino == first, "what both had is not asked for again"
    assert not list(out.parents[1].glob("*/checkpoint")) and not list(out.parent.glob("*.old-2"))


def test_what_was_begun_together_goes_on_alone_and_the_other_way_round(study, tasks, out, pool, tmp_path, monkeypatch):
    """Another number of GPUs makes other jobs; a split whose files were deleted is played again by itself."""
    recording = Path(study.policies["base"].model)
    ids = (*IDS, "l1/c")
    recording.write_text(recording.read_text() + recording.read_text().replace("l1/b", "l1/c").split("\n", 6)[6])
    three = [*TASKS, make_task("l1/c", spec=SPEC)]
    write_tasks(tasks, list(zip(three, ("level1", "level2", "unseen"), strict=True)), {})
    places = [(split, out.parents[1] / f"base-{split}" / "turns.parquet") for split in ("level1", "level2", "unseen")]
    real, calls = FakePool.judge, []

    def interrupted(self, pairs, on_verdict=None, on_new=None):
        calls.append(len(pairs))
        if len(calls) in (2, 4):
            raise KeyboardInterrupt
        return real(self, pairs, on_verdict, on_new)

    monkeypatch.setattr(FakePool, "judge", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_rollouts(study, "base", places, tasks)
    run_rollouts(study, "base", places[1:2], tasks)
    assert calls == [9, 9, 3], "its first turn was judged, its second one answered"
    with pytest.raises(KeyboardInterrupt):
        run_rollouts(study, "base", places[2:], tasks)
    run_rollouts(study, "base", places, tasks)
    assert calls == [9, 9, 3, 3, 6]
    for (split, path), task in zip(places, ids, strict=True):
        turns, meta = read_turns(path)
        assert [(t.task_id, t.trajectory, t.turn) for t in turns] == [(task, k, n) for k in range(3) for n in (1, 2)]
        assert meta["split"] == split and len(meta["turn_seconds"]) == 2
    assert not list(out.parents[1].glob("*/checkpoint"))


def test_an_interrupt_is_resumed_and_gives_the_same_file(study, tasks, out, pool, monkeypatch):
    """Resumed on another machine it says so."""
    real, calls = FakePool.judge, []

    def interrupted(self, pairs, on_verdict=None, on_new=None):
        calls.append(len(pairs))
        if len(calls) == 2:
            raise KeyboardInterrupt
        device = {"device_name": "another"} if len(calls) > 2 else {}
        return [v.model_copy(update=device) for v in real(self, pairs, on_verdict, on_new)]

    monkeypatch.setattr(FakePool, "judge", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_rollout(study, "base", "level1", tasks, out)
    assert not out.exists()
    run_rollout(study, "base", "level1", tasks, out)
    assert calls == [6, 6, 6]
    interrupted_turns, meta = read_turns(out)
    assert meta["judged_on"] == ["cpu", "another"]
    assert len((out.parent / "timing.jsonl").read_text().splitlines()) == 2
    whole = out.parents[1] / "whole" / "turns.parquet"
    run_rollout(study, "base", "level1", tasks, whole)
    assert read_turns(whole)[0] == interrupted_turns


def test_a_harness_failure_is_tried_again_at_once(study, tasks, out, pool):
    pool.failures["l1/a 0 1"] = 1
    run_rollout(study, "base", "level1", tasks, out)
    turns, meta = read_turns(out)
    assert len(turns) == 12
    assert meta["num_unjudged"] == 0


def test_a_harness_that_keeps_failing_writes_nothing_and_can_be_resumed(study, tasks, out, pool):
    pool.failures["l1/a 0 1"] = 2
    with pytest.raises(HarnessError, match=r"1 of 6 trajectories of base on level1 have no verdict.*l1/a"):
        run_rollout(study, "base", "level1", tasks, out)
    assert not out.exists()
    run_rollout(study, "base", "level1", tasks, out)
    assert len(read_turns(out)[0]) == 12


def test_a_few_failures_are_written_as_what_they_are_and_stay_retryable(study, tasks, out, pool, monkeypatch, caplog):
    monkeypatch.setattr(run_module, "MAX_UNJUDGED_SHARE", 0.2)
    pool.failures["l1/a 0 1"] = 2
    run_rollout(study, "base", "level1", tasks, out)
    turns, meta = read_turns(out)
    assert (len(turns), turns[0].outcome, meta["num_unjudged"]) == (11, None, 1)
    assert "left out of every average" in caplog.text
    run_rollout(study, "base", "level1", tasks, out)
    assert len(read_turns(out)[0]) == 12


def test_a_changed_recording_does_not_go_on_with_the_old_one(study, tasks, out, pool, monkeypatch):
    pool.failures["l1/a 0 1"] = 2
    with pytest.raises(HarnessError):
        run_rollout(study, "base", "level1", tasks, out)
    with open(study.policies["base"].model, "a") as f:  # noqa: PTH123
        f.write(json.dumps({"task_id": "l1/c", "trajectory": 0, "turn": 1, "completion": "x"}) + "\n")
    with pytest.raises(DataError, match=r"policies\.base\.files\.recorded\.jsonl: its content has changed"):
        run_rollout(study, "base", "level1", tasks, out)


def test_a_finished_rollout_is_taken_again_when_its_file_was_deleted(study, tasks, out, pool):
    run_rollout(study, "base", "level1", tasks, out)
    before = out.read_bytes()
    out.unlink()
    moved = study.policies["base"].model_copy(update={"base_url": "http://elsewhere/v1", "label": "renamed"})
    run_rollout(study.model_copy(update={"policies": {"base": moved}}), "base", "level1", tasks, out)
    assert out.read_bytes() == before
    assert len(pool.opened) == 1


def test_finished_answers_are_kept_beside_those_of_changed_settings(study, tasks, out, pool, caplog, monkeypatch):
    run_rollout(study, "base", "level1", tasks, out)
    once = out.read_bytes()
    out.unlink()  # as the workflow does
    shorter = study.model_copy(update={"rollout": study.rollout.model_copy(update={"num_turns": 1})})
    run_rollout(shorter, "base", "level1", tasks, out)
    assert len(read_turns(out)[0]) == 6
    assert (out.parent / "finished.old-1" / "turns.parquet").read_bytes() == once
    assert "finished.old-1" in caplog.text
    monkeypatch.setitem(STEP_VERSIONS, "rollout", STEP_VERSIONS["rollout"] + 1)
    run_rollout(shorter, "base", "level1", tasks, out)
    assert (out.parent / "finished.old-2").is_dir(), "made by other code: rolled out again"


def test_a_rollout_from_before_a_setting_existed_is_taken_again(study, tasks, out, pool):
    run_rollout(study, "base", "level1", tasks, out)
    manifest = out.parent / "finished" / "rollout.json"
    old = json.loads(manifest.read_text())
    del old["rollout"]["history"], old["rollout"]["feedback"]
    manifest.write_text(json.dumps(old))
    run_rollout(study, "base", "level1", tasks, out)
    assert len(pool.opened) == 1
    shuffled = study.model_copy(update={"rollout": study.rollout.model_copy(update={"feedback": "shuffled"})})
    run_rollout(shuffled, "base", "level1", tasks, out)
    assert len(pool.opened) == 2, "made without the setting is made with its default"


def test_a_strategy_spends_the_same_kernels_and_says_what_they_cost(study, tasks, out, pool):
    strategies = {"parallel": {"rollout": {"num_turns": 1}}, "beam": {"method": "beam"}}
    study = study.model_copy(update={"search": SearchConfig.model_validate({"strategies": strategies})})
    run_rollout(study, "base", "level1", tasks, out, strategy="beam")
    turns, meta = read_turns(out)
    assert len(turns) == 12 and (meta["policy"], meta["split"], meta["strategy"]) == ("base", "level1", "beam")
    assert len(meta["turn_seconds"]) == 2 and all(s > 0 for s in meta["turn_seconds"])
    assert len({t.kernel.digest for t in turns if t.turn == 1}) == 2, "of each task one trajectory went on, copied"
    run_rollout(study, "base", "level1", tasks, out, strategy="parallel")
    assert {t.turn for t in read_turns(out)[0]} == {1}, "a beam is not taken for something else"
    with pytest.raises(ConfigError, match=r"no strategy 'luck'.*parallel, beam"):
        run_rollout(study, "base", "level1", tasks, out, strategy="luck")


@pytest.mark.parametrize(("num_cut", "level"), [(0, None), (1, "WARNING"), (7, "ERROR")])
def test_answers_that_were_cut_off_are_told_with_the_key(study, tasks, out, pool, caplog, num_cut, level):
    path = Path(study.policies["base"].model)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines[:num_cut]:
        line["finish_reason"] = "length"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    run_rollout(study, "base", "level1", tasks, out)
    told = [r for r in caplog.records if "cut off" in r.getMessage()]
    assert [r.levelname for r in told] == ([level] if level else [])
    if told:
        assert f"{num_cut} of 12 answers of base were cut off at 16384 tokens" in told[0].getMessage()
        assert "policies.base.max_response_tokens" in told[0].getMessage()


def test_a_policy_that_is_none_is_named(study, tasks, out, pool):
    with pytest.raises(ConfigError, match=r"no policy 'kevin'.*there are base"):
        run_rollout(study, "kevin", "level1", tasks, out)


class TestCeiling:
    def writer(self, kernels, limits=None):
        def write(task, language, limit):
            if limits is not None:
                limits.append((task.id, language, limit))
            return [make_kernel(source) for source in kernels.get(task.id, [])]

        return write

    def test_every_kernel_is_a_trajectory_of_one_turn(self, study, tasks, out, pool):
        limits = []
        write = self.writer({"l1/a": ["k", "kk", "kkk"], "l1/b": ["k"]}, limits)
        run_ceiling(study, "level1", tasks, out, write, limit=5)
        turns, meta = read_turns(out)
        assert limits == [("l1/a", "cpp", 5), ("l1/b", "cpp", 5)]
        assert [(t.task_id, t.trajectory, t.turn, t.speedup) for t in turns] == [
            ("l1/a", 0, 1, 1.0),
            ("l1/a", 1, 1, 2.0),
            ("l1/a", 2, 1, 3.0),
            ("l1/b", 0, 1, 1.0),
        ]
        assert turns[1].completion == "```cpp\nkk\n```\n"
        assert meta["policy"] == "ceiling" and meta["judged_on"] == ["cpu"]

    def test_unknown_tasks(self, study, tasks, out, pool):
        run_ceiling(study, "level1", tasks, out, self.writer({}))
        turns, meta = read_turns(out)
        assert turns == [] and meta["policy"] == "ceiling"

    def test_a_failing_harness(self, study, tasks, out, pool):
        write = self.writer({"l1/a": ["k", "kk"]})
        pool.failures["kk"] = 1
        with pytest.raises(HarnessError, match="1 of 2 trajectories of ceiling"):
            run_ceiling(study, "level1", tasks, out, write)
