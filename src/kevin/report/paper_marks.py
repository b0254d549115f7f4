"""What the paper states in numbers about its trainings, drawn as marks beside our curves; its curves are not copied.

Origin: *Kevin: Multi-Turn RL for Generating CUDA Kernels*, arXiv 2507.11948v1, and the authors' blog post.
Steps are those of its 32-billion-parameter trainings on 8 GPUs: where ours stand against them says nothing.
"""

from __future__ import annotations

from typing import NamedTuple


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
