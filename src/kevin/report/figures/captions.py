"""What each figure shows, for the report page."""

from __future__ import annotations

TITLES = {
    "serial_scaling": "Serial scaling",
    "parallel_scaling": "Parallel scaling",
    "fast_p": "fast_p",
    "outcomes": "Outcomes by turn",
    "turns": "What turns are worth",
    "layernorm_case_study": "Case study",
    "search": "Ways to spend the same kernels",
    "training": "Training curves",
    "training_turns": "Training by turn",
    "ablations": "Training runs compared",
}

CAPTIONS = {
    "serial_scaling": "The best kernel of all trajectories after so many turns: mean speedup over PyTorch eager (0 "
    "for a task without a correct kernel) and share of tasks with a correct kernel. Dotted: what a "
    "search through the kernel writer's first mistake-free plans reaches.",
    "parallel_scaling": "The best of k whole trajectories, drawn without replacement (unbiased estimate), averaged "
    "over tasks.",
    "fast_p": "Share with a correct kernel at least p times as fast as PyTorch eager; above for each task's best "
    "trajectory, below for all trajectories. At p = 0 it is correctness.",
    "outcomes": "What became of the kernels of each turn. Turns that the harness could not judge are left out.",
    "turns": "From the top: the best kernel of all trajectories so far, mean speedup over PyTorch eager (0 for a task "
    "without a correct one); share of correct kernels; of kernels that were wrong one turn before, the share that is "
    "now correct; of those that were correct, the share that still is; share of kernels at least 95 % alike to the "
    "answer before (matching tokens of both, without comments and layout). Kernels of all seeds together.",
    "layernorm_case_study": "Each policy's best trajectory on one task, turn by turn, with the policy's own summary of "
    "what it changed. Below, for reference, the trajectory that the paper's authors published; it is from another task "
    "size and machine.",
    "search": "What each strategy has found after so many kernels, and after so many seconds in which the device "
    "generated answers or ran kernels: mean speedup over PyTorch eager of each task's fastest correct kernel (0 "
    "without any), and share of tasks with a correct one. Seeds are lines of the same style.",
    "training": "What the trainer logged, step by step.",
    "training_turns": "Score and correctness of the kernels of each turn while training went on, running means.",
    "ablations": "Means over the second half of each run's steps, with bootstrap 95 % intervals over these steps.",
}


def caption(name: str, note: str | None = None) -> str:
    """What stands under the figure: what it shows, and what must be said of the study as a whole."""
    return " ".join(filter(None, [CAPTIONS.get(name, ""), note]))
