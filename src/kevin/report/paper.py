"""The paper's numbers, printed beside ours and never mixed with them.

Origin: *Kevin: Multi-Turn RL for Generating CUDA Kernels*, arXiv 2507.11948v1, Tables 1 and 2 (one H200, temperature
0.9, speedup over PyTorch eager). Their 100 unseen tasks are 20 of KernelBench's levels 1 and 2, held out from training,
and 80 new ones; each number is of all of them, none of one level. The authors' blog post of 6 May 2025 evaluated
another task set, all 200 tasks of levels 1 and 2, and tells level 2 apart; the LayerNorm trajectory is from there too
(KernelBench level 1, task 40, input (16, 64, 256, 256)). Percentages are kept as fractions. Neither prints intervals.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kevin.core.types import Outcome

OURS = "this study"
SOURCE = "paper (arXiv 2507.11948, H200)"
BLOG = "authors' blog (6 May 2025)"
BLOG_SOURCE = "authors' blog (6 May 2025, KernelBench level 1 task 40)"
NUM_TASKS = 100
TASKS = "100 unseen tasks, levels not told apart"
"""What every row of its two tables covers."""
BLOG_TASKS = "all 200 tasks of KernelBench levels 1 and 2, 90 % of them trained on"
BLOG_LEVEL = "the 100 tasks of KernelBench level {level}, 90 % of them trained on"
IMPLIED = "not printed there: twice the figure of both levels minus that of level 2"
BASELINE = "eager"

_TABLE1_COLUMNS = (
    *("correct_best", "correct_avg", "speedup_best", "speedup_avg"),
    *("fast_1_best", "fast_1_avg", "fast_1.5_best", "fast_1.5_avg"),
)
TABLE1 = {
    policy: dict(zip(_TABLE1_COLUMNS, values, strict=True))
    for policy, *values in (
        ("Kevin, multi-turn RL", 0.82, 0.46, 1.10, 0.40, 0.43, 0.15, 0.20, 0.06),
        ("single-turn RL", 0.82, 0.45, 0.85, 0.35, 0.43, 0.16, 0.16, 0.04),
        ("QwQ-32B (base model)", 0.56, 0.11, 0.53, 0.08, 0.23, 0.03, 0.10, 0.01),
        ("o4-mini", 0.38, 0.22, 0.78, 0.27, 0.21, 0.07, 0.13, 0.06),
        ("o3-mini", 0.27, 0.08, 0.30, 0.08, 0.09, 0.02, 0.04, 0.02),
    )
}

# The blog post: of its own model the mean over 16 trajectories of 8 turns and the best of them; of others the best.
_BLOG_ALL = {
    "Kevin, multi-turn RL": {"correct_avg": 0.65, "correct_best": 0.89, "speedup_best": 1.41},
    "o4-mini": {"correct_best": 0.53},
    "o3": {"correct_best": 0.51},
}
_BLOG_LEVEL2 = {
    "Kevin, multi-turn RL": {"correct_avg": 0.48, "speedup_best": 1.74},
    "o4-mini": {"correct_avg": 0.096, "speedup_best": 1.2},
    "o3": {"correct_avg": 0.093, "speedup_best": 1.2},
}

# One budget of 128 kernels a task; (speedup, correct) for each split into trajectories x turns.
_TABLE2_SPLITS = ((16, 8), (32, 4), (128, 1))
_TABLE2 = {
    "Kevin, multi-turn RL": ((1.10, 0.82), (1.02, 0.83), (0.65, 0.76)),
    "single-turn RL": ((0.85, 0.82), (0.81, 0.79), (0.70, 0.73)),
    "QwQ-32B (base model)": ((0.53, 0.57), (0.47, 0.52), (0.42, 0.54)),
}


class StoryTurn(NamedTuple):
    """One turn of a trajectory told to people."""

    turn: int
    outcome: Outcome
    speedup: float | None
    summary: str


LAYER_NORM = (
    StoryTurn(1, Outcome.CORRECT, 0.6, "Shared memory; mean and variance fused with the normalisation"),
    StoryTurn(2, Outcome.CORRECT, 4.27, "Another block size"),
    StoryTurn(3, Outcome.INCORRECT, None, "Warp reduction that is wrong"),
    StoryTurn(4, Outcome.PARSE_ERROR, None, "Answer too long: cut off"),
    StoryTurn(5, Outcome.CORRECT, 9.61, "Two-level __shfl_xor_sync reduction"),
)


def table1() -> list[dict[str, Any]]:
    """Rows of Table 1 in the columns of our tables of policies, then those of the blog post on all its tasks."""
    rows = [_row(SOURCE, TASKS, NUM_TASKS, policy, values) for policy, values in TABLE1.items()]
    return rows + [_row(BLOG, BLOG_TASKS, 200, policy, values) for policy, values in _BLOG_ALL.items()]


def level(split: str) -> list[dict[str, Any]]:
    """What the blog post says of ``level1`` or ``level2``; nothing of another split. The paper tells none apart."""
    if split == "level2":
        tasks = BLOG_LEVEL.format(level=2)
        return [_row(BLOG, tasks, 100, policy, values) for policy, values in _BLOG_LEVEL2.items()]
    if split == "level1":
        policy = next(iter(_BLOG_ALL))
        both, second = _BLOG_ALL[policy], _BLOG_LEVEL2[policy]
        implied = {name: 2 * both[name] - second[name] for name in second}
        return [_row(BLOG, f"{BLOG_LEVEL.format(level=1)} ({IMPLIED})", 100, policy, implied)]
    return []


def _row(source: str, tasks: str, num_tasks: int, policy: str, values: Mapping[str, Any]) -> dict[str, Any]:
    fast_0 = {name.replace("correct", "fast_0"): value for name, value in values.items() if name.startswith("correct")}
    head = {"source": source, "policy": policy, "label": policy, "baseline": BASELINE, "subset": tasks}
    return head | {"num_tasks": num_tasks, "trajectories": 16, "turns": 8} | dict(values) | fast_0


def table2() -> list[dict[str, Any]]:
    """Rows of Table 2 in the columns of our tables of serial and parallel budgets, with fast_1 of Table 1."""
    return [
        {
            "source": SOURCE,
            "split": TASKS,
            "policy": policy,
            "label": policy,
            "budget": trajectories * turns,
            "trajectories": trajectories,
            "turns": turns,
            "speedup": speedup,
            "correct": correct,
            "fast_1": TABLE1[policy]["fast_1_best"] if (trajectories, turns) == _TABLE2_SPLITS[0] else None,
            "num_tasks": NUM_TASKS,
        }
        for policy, cells in _TABLE2.items()
        for (trajectories, turns), (speedup, correct) in zip(_TABLE2_SPLITS, cells, strict=True)
    ]


def serial_over_parallel(policy: str) -> float:
    """Of Table 2: speedup of 16 trajectories x 8 turns over that of 128 first answers."""
    cells = dict(zip(_TABLE2_SPLITS, _TABLE2[policy], strict=True))
    return cells[16, 8][0] / cells[128, 1][0]


# --- what it states in numbers about its trainings: marks beside our curves; its curves are not copied ------------
# Steps are those of 32 billion parameters on 8 GPUs: where ours stand against them says nothing.


class Mark(NamedTuple):
    """A step at which the paper says that something happened."""

    metric: str
    """Of ``metrics.jsonl``, the one in whose panel it stands."""
    step: int
    text: str
    """What happened, and when."""


TRAINING_MARKS = (
    Mark("score", 40, "multi-turn run ends at step 40"),
    Mark("score", 50, "single-turn run ends at step 50"),
    Mark("completion_tokens", 30, "limit raised from 16,384 to 22K at step 30"),
    Mark("not_okay_ratio", 40, "collapse at step ~40 without its remedies"),
    Mark("not_okay_ratio", 100, "collapse at step ~100 with both"),
)
"""Reward, response length and Not-Okay ratio: the curves that the paper shows."""

WARNING_STEPS = 15
"""The Not-Okay ratio rises about so many steps before a collapse."""

REMEDY_LOSS, REMEDY_GRAD_NORM = "dr_grpo", 0.05
"""The two remedies: a loss of constant length, and gradients clipped to this norm."""

COMPILE_LINE, BOUND_LINE = 24.966306723402784, 8081.2315 / 125
"""Speedup over eager of torch.compile, and of one read and one write of the tensor at 4.3 TB/s, on the authors'
LayerNorm task (KernelBench level 1, task 40): of this study on one H200 (``results/reference/nvidia-h200``,
``kernelbench_baselines.csv``, torch 2.11), since the authors name neither."""
LINES_SOURCE = "lines: this study's reference on one H200, torch 2.11"
