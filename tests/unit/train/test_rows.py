"""From turns to samples: returns and advantages by hand, failures, placeholders; the order of tasks; the watch."""

import itertools
import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from train_fixtures import make_task

from kevin.core import files
from kevin.core.config import RewardConfig, TrainConfig
from kevin.core.errors import ConfigError, DataError, HarnessError
from kevin.core.types import Kernel, Outcome, TaskSpec, TensorSpec, Turn
from kevin.train import records
from kevin.train.order import task_order, training_tasks
from kevin.train.records import TIMES, progress_line, repetition, stop_reason
from kevin.train.rows import OwnShares, check_judged, kept_groups_scale, rows_frame, step_metrics, training_rows


def turn(trajectory, number, speedup=None, outcome=Outcome.INCORRECT, task="t"):
    return Turn(
        task_id=task,
        trajectory=trajectory,
        turn=number,
        completion="<think>\nOkay, so\n</think>\n",
        kernel=None,
        outcome=Outcome.CORRECT if speedup else outcome,
        speedup=speedup,
        num_prompt_tokens=5,
        num_completion_tokens=7,
        finish_reason="stop",
    )


def rows_of(turns, m, n, task_ids=("t",), **options):
    config = RewardConfig(**options.pop("reward", {}))
    return training_rows(turns, task_ids, num_trajectories=m, num_turns=n, config=config, **options)


def test_returns_and_advantages_by_hand():
    """Scores 1.3, 0 | 0, 2.3: returns 1.3, 0 | 0.92, 2.3; mean 1.13, unbiased std 0.9529..."""
    rows = rows_of([turn(0, 1, 1.0), turn(0, 2), turn(1, 1), turn(1, 2, 2.0)], 2, 2)
    assert [r.score for r in rows] == pytest.approx([1.3, 0, 0, 2.3])
    assert [r.return_ for r in rows] == pytest.approx([1.3, 0.92, 0, 2.3])
    std = math.sqrt(((1.3 - 1.13) ** 2 + 1.13**2 + (0.92 - 1.13) ** 2 + (2.3 - 1.13) ** 2) / 3)
    assert [r.advantage for r in rows] == pytest.approx([(x - 1.13) / (std + 1e-4) for x in (1.3, 0.92, 0, 2.3)])
    assert [(r.trajectory, r.turn) for r in rows] == [(0, 1), (1, 1), (0, 2), (1, 2)]


def test_max_returns_and_leave_one_out():
    rows = rows_of(
        [turn(0, 1, 1.0), turn(0, 2, 4.0)], 1, 2, reward={"returns": "max", "gamma": 0.8}, mode="leave_one_out"
    )
    assert [r.return_ for r in rows] == pytest.approx([3.44, 4.3])
    assert [r.advantage for r in rows] == pytest.approx([-0.86, 0.86])


def test_progress_and_turn_numbers_reach_the_rows():
    """Scores 1.3, 2.3 | 0, 1.3: progress 1.3, 1 | 0, 1.3; by turn the others' means are 0, 1.3 | 1.3, 1."""
    turns = [turn(0, 1, 1.0), turn(0, 2, 2.0), turn(1, 1), turn(1, 2, 1.0)]
    reward = {"progress_weight": 1.0, "gamma": 0.0}
    rows = rows_of(turns, 2, 2, reward=reward, mode="turn_leave_one_out")
    assert [(r.trajectory, r.turn) for r in rows] == [(0, 1), (1, 1), (0, 2), (1, 2)]
    assert [r.score for r in rows] == pytest.approx([1.3, 0, 2.3, 1.3]), "scores stay what they are"
    assert [r.return_ for r in rows] == pytest.approx([1.3, 0, 1.0, 1.3])
    assert [r.advantage for r in rows] == pytest.approx([1.3, -1.3, -0.3, 0.3])


def test_of_equally_good_answers_the_shorter_one_is_preferred_where_length_costs():
    long, short = turn(0, 1, 1.0), turn(1, 1, 1.0)
    turns = [long.model_copy(update={"num_completion_tokens": 150}), short]
    penalty = (150 - short.num_completion_tokens) * 2 / 1000
    rows = rows_of(turns, 2, 1, reward={"length_penalty": 2.0}, mode="leave_one_out")
    assert [r.score for r in rows] == [1.3, 1.3], "scores stay what they are"
    assert [r.advantage for r in rows] == pytest.approx([-penalty, penalty])
    assert [r.advantage for r in rows_of(turns, 2, 1)] == [0.0, 0.0]


def test_no_verdict_is_no_reward_and_what_never_was_is_a_placeholder():
    turns = [turn(0, 1, 1.0), turn(0, 2, 1.0), turn(1, 1, 2.0), turn(1, 2, outcome=None), turn(2, 1)]
    rows = rows_of(turns, 3, 2)
    assert [r.played is None for r in rows] == [False] * 5 + [True]
    assert [r.return_ for r in rows] == pytest.approx([1.3 + 0.4 * 1.3, 2.3, 0, 1.3, None, None])
    assert rows[4].advantage == 0 and rows[5].advantage == 0
    without = rows_of([turn(0, 1, 1.0), turn(0, 2, 1.0), turn(1, 1, 2.0), turn(2, 1)], 3, 2)
    assert [r.advantage for r in rows] == [r.advantage for r in without], "a failure must not move the others"


@pytest.mark.parametrize("speedup", [None, 1.5])
def test_a_group_without_variance_teaches_nothing(speedup):
    rows = rows_of([turn(k, 1, speedup) for k in range(4)], 4, 1)
    assert [r.advantage for r in rows] == [0.0] * 4
    assert step_metrics(rows, 1)["flat_groups"] == 1


def test_turns_of_no_row_are_refused():
    with pytest.raises(ValueError, match="no row"):
        rows_of([turn(0, 1), turn(2, 1)], 2, 1)
    with pytest.raises(ValueError, match="trajectory 0"):
        rows_of([turn(0, 1), turn(0, 1)], 2, 1)


scores = st.lists(st.one_of(st.none(), st.floats(0.01, 50)), min_size=2, max_size=8)


@given(scores, st.sampled_from(["group", "leave_one_out"]))
def test_advantages_sum_to_zero_and_keep_the_order(speedups, mode):
    rows = rows_of([turn(k, 1, s) for k, s in enumerate(speedups)], len(speedups), 1, mode=mode)
    assert math.fsum(r.advantage for r in rows) == pytest.approx(0, abs=1e-6)
    by_return = sorted(rows, key=lambda r: r.return_)
    assert all(a.advantage <= b.advantage + 1e-9 for a, b in itertools.pairwise(by_return))


def test_a_mean_over_the_groups_that_are_not_flat():
    assert kept_groups_scale([(1, 2), (1, 2)]) == 2.0
    assert kept_groups_scale([(0, 2)]) == kept_groups_scale([(2, 2)]) == 1.0


def test_step_metrics():
    turns = [turn(0, 1, 1.0), turn(0, 2, 3.0), turn(1, 1), turn(1, 2, outcome=None)]
    record = step_metrics(rows_of(turns, 3, 2), 2)
    assert record["score"] == pytest.approx((1.3 + 3.3 + 0) / 3)
    assert record["correct"] == pytest.approx(2 / 3)
    assert record["speedup"] == pytest.approx(2.0)
    assert (record["correct_turn_1"], record["correct_turn_2"]) == (0.5, 1.0)
    assert record["unjudged"] == 0.25
    assert record["placeholders"] == pytest.approx(2 / 6)
    assert record["not_okay_ratio"] == 0


def test_a_broken_judge_stops_the_step():
    kernel = Kernel(dialect="c_abi", language="cpp", source="x")
    turns = [turn(k, 1, outcome=None).model_copy(update={"kernel": kernel}) for k in range(2)]
    turns.append(turn(2, 1, 1.0).model_copy(update={"kernel": kernel}))
    with pytest.raises(HarnessError, match="2 of 3"):
        check_judged([*turns, turn(3, 1), turn(4, 1)])
    check_judged(turns[1:])


def test_rows_on_disk_hold_played_turns_only():
    frame = rows_frame(rows_of([turn(0, 1, 1.0), turn(1, 1, outcome=None)], 3, 1))
    assert list(frame["trajectory"]) == [0, 1]
    assert frame["score"].isna().tolist() == [False, True] and frame["advantage"].tolist() == [0, 0]


# --- order ------------------------------------------------------------------------------------------------------

POOL = [make_task(f"x{i}", level) for level, num in ((1, 4), (2, 8)) for i in range(num)]


def test_order_mixes_levels_and_uses_every_task():
    order = task_order(POOL, 12, 3, seed=1)
    assert all(len({t.id for t in step}) == 3 for step in order)
    assert all(Counter(t.level for t in step) == {1: 1, 2: 2} for step in order)
    assert set(Counter(t.id for step in order for t in step).values()) == {3}


def test_order_is_the_seeds_and_longer_runs_begin_alike():
    ids = [[t.id for t in step] for step in task_order(POOL, 9, 5, seed=3)]
    assert ids[:4] == [[t.id for t in step] for step in task_order(POOL, 4, 5, seed=3)]
    assert ids != [[t.id for t in step] for step in task_order(POOL, 9, 5, seed=4)]
    assert all(len(set(step)) == 5 for step in ids)


def test_too_many_tasks_a_step():
    with pytest.raises(ConfigError, match="has 12 tasks"):
        task_order(POOL, 1, 13, seed=0)


def test_large_tasks_are_left_out_of_training(tmp_path):
    def sized(name, elements):
        tensor = TensorSpec(name="x", shape=(elements,), dtype="float32")
        return make_task(name, 1).model_copy(update={"spec": TaskSpec(inputs=(tensor,), outputs=(tensor,))})

    small, large, unknown = sized("small", 10**6), sized("large", 10**7), make_task("unknown", 1)
    path = tmp_path / "tasks.parquet"
    files.write_tasks(path, [(small, "train"), (large, "train"), (unknown, "train"), (sized("other", 1), "level1")], {})
    assert [t.id for t in training_tasks(path, TrainConfig())] == ["l1/small", "l1/large", "l1/unknown"]
    assert [t.id for t in training_tasks(path, TrainConfig(max_task_gb=0.008))] == ["l1/small", "l1/unknown"]
    files.write_tasks(path, [(large, "train")], {})
    with pytest.raises(ConfigError, match=r"no task of .* takes less than 0\.08 GB"):
        training_tasks(path, TrainConfig(max_task_gb=0.01))


# --- stability --------------------------------------------------------------------------------------------------


def test_repetition():
    assert repetition(range(100)) == 0
    assert repetition([1, 2] * 50) == pytest.approx(1 - 2 / 93)
    assert repetition([1, 2, 3]) == 0


def test_stop_rule_wants_patience_and_names_its_reason(monkeypatch):
    monkeypatch.setattr(records, "STOP_PATIENCE", 2)
    config = TrainConfig(stop_not_okay=0.5, stop_repetition=0.7)
    drifting = [{"not_okay_ratio": x, "repetition": 0.1} for x in (0.1, 0.6, 0.4, 0.6, 0.7)]
    assert [stop_reason(drifting[: i + 1], config) is None for i in range(5)] == [True] * 4 + [False]
    assert "not_okay_ratio was above 0.5 in 2 steps" in stop_reason(drifting, config)
    assert "repetition" in stop_reason([{"repetition": 0.9}] * 2, config)
    assert stop_reason(drifting, TrainConfig(stop_not_okay=None, stop_repetition=None)) is None


def told(judge_s: float) -> str:
    record = {"step": 1, "score": 1.0, "correct": 0.5, "num_kernels": 64, "num_completion_tokens": 4000}
    return progress_line(record | {TIMES: {"generate": 2.0, "judge": judge_s}}, 3, 10.0)


def test_the_pace_of_judging_is_told_and_never_that_of_reading_stored_verdicts() -> None:
    assert "160 kernels/min" in told(24.0)
    assert "kernels/min" not in told(0.0145) and "2,000 tokens/s" in told(0.0145)


@pytest.mark.parametrize("line", ["7", '["key"]', '["key", "much"]', '{"key": 0.5}'])
def test_a_damaged_line_of_own_shares_is_named(tmp_path, line):
    shares = tmp_path / "own_shares.jsonl"
    shares.write_text(f'["key", 0.5]\n{line}\n')
    with pytest.raises(DataError, match=r"own_shares\.jsonl: damaged \(line 2"):
        OwnShares(shares)
