"""The paper's numbers, printed beside ours and never mixed with them.

Origin: *Kevin: Multi-Turn RL for Generating CUDA Kernels*, arXiv 2507.11948v1, Tables 1 and 2 (one H200, temperature
0.9, speedup over PyTorch eager). Their 100 unseen tasks are 20 of KernelBench's levels 1 and 2, held out from training,
and 80 new ones; each number is of all of them, none of one level. The LayerNorm trajectory is from the authors' blog
post of 6 May 2025 (KernelBench level 1, task 40, input (16, 64, 256, 256)), which evaluated another task set.
Percentages are kept as fractions. The paper prints no intervals.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kevin.core.types import Outcome

SOURCE = "paper (arXiv 2507.11948, H200)"
BLOG_SOURCE = "authors' blog (6 May 2025, KernelBench level 1 task 40)"
NUM_TASKS = 100
TASKS = "100 unseen tasks, levels not told apart"
"""What every row of its two tables covers."""
BASELINE = "eager"

_TABLE1_COLUMNS = (
    *("policy", "correct_best", "correct_avg", "speedup_best", "speedup_avg"),
    *("fast_1_best", "fast_1_avg", "fast_1.5_best", "fast_1.5_avg"),
)
_TABLE1 = (
    ("Kevin, multi-turn RL", 0.82, 0.46, 1.10, 0.40, 0.43, 0.15, 0.20, 0.06),
    ("single-turn RL", 0.82, 0.45, 0.85, 0.35, 0.43, 0.16, 0.16, 0.04),
    ("QwQ-32B (base model)", 0.56, 0.11, 0.53, 0.08, 0.23, 0.03, 0.10, 0.01),
    ("o4-mini", 0.38, 0.22, 0.78, 0.27, 0.21, 0.07, 0.13, 0.06),
    ("o3-mini", 0.27, 0.08, 0.30, 0.08, 0.09, 0.02, 0.04, 0.02),
)

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
    """Rows of Table 1 in the columns of our level tables."""
    shared = {
        "source": SOURCE,
        "baseline": BASELINE,
        "subset": TASKS,
        "num_tasks": NUM_TASKS,
        "trajectories": 16,
        "turns": 8,
    }
    rows = [dict(zip(_TABLE1_COLUMNS, row, strict=True)) for row in _TABLE1]
    return [
        shared | row | {"label": row["policy"], "fast_0_best": row["correct_best"], "fast_0_avg": row["correct_avg"]}
        for row in rows
    ]


def table2() -> list[dict[str, Any]]:
    """Rows of Table 2 in the columns of our table of serial and parallel budgets."""
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
            "num_tasks": NUM_TASKS,
        }
        for policy, cells in _TABLE2.items()
        for (trajectories, turns), (speedup, correct) in zip(_TABLE2_SPLITS, cells, strict=True)
    ]
