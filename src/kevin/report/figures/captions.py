"""What each figure shows, for the report page."""

from __future__ import annotations

TITLES = {
    "primary": "Turns against first answers",
    "serial_scaling": "Serial scaling",
    "parallel_scaling": "Parallel scaling",
    "serial_parallel_map": "Serial/parallel map",
    "fast_p": "fast_p",
    "speedup_distribution": "Speedups of correct kernels",
    "roofline": "Roofline",
    "outcomes": "Outcomes by turn",
    "turns": "What turns are worth",
    "layernorm_case_study": "Case study",
    "search": "Ways to spend the same kernels",
    "training": "Training curves",
    "training_turns": "Training by turn",
    "stability": "Stability of training",
    "ablations": "Training runs compared",
}

CAPTIONS = {
    "primary": "The fastest correct kernel of a task among so many, as first answers and as trajectories of the most "
    "turns: geometric mean speedup over PyTorch eager with eager as the floor, from the first table. Only one point of "
    "it is the primary endpoint.",
    "serial_scaling": "The best kernel after so many turns, of as many trajectories as every policy has (of more, the "
    "mean over all choices of these): mean speedup over PyTorch eager (0 for a task without a correct kernel) and "
    "share of tasks with a correct kernel. Dotted: what a search through the kernel writer's first mistake-free plans "
    "reaches.",
    "parallel_scaling": "The best of k whole trajectories, drawn without replacement (unbiased estimate), averaged "
    "over tasks.",
    "serial_parallel_map": "What k trajectories find in their first t turns (unbiased best@k, mean over tasks), and "
    "which split of a budget of k t kernels is best: framed, as measured; diamonds, by a law fitted to the cells, "
    "a + b log2 k + c log2 t + d log2 k log2 t, among the numbers of turns that were measured. Where its interval "
    "reaches from one end to the other, or it explains less than 80 % of the cells' variance, the data do not "
    "determine the split, and no diamond is drawn.",
    "fast_p": "Share with a correct kernel at least p times as fast as PyTorch eager; above for the best of as "
    "many trajectories of a task as every policy has, below for single trajectories. At p = 0 it is correctness.",
    "speedup_distribution": "Share of a policy's correct kernels that are at most so many times as fast as PyTorch "
    "eager; all turns and seeds together, a kernel counting as often as it was written. Beside them torch.compile and "
    "the ceiling, one value for each task. Curves of policies that solve other tasks are not of the same tasks.",
    "roofline": "The fastest correct kernel of each trajectory against the device's peaks as the judge measured them: "
    "a copy, and a large matrix product. Above, tasks without products: measured time against the time that moving "
    "every tensor once would take. Below, tasks with products: their speed against arithmetic intensity. What stays in "
    "a cache, or saves products by algebra, beats these lines. Kernels whose verdict holds no roofline are left out.",
    "outcomes": "What became of the kernels of each turn. Turns that the harness could not judge are left out.",
    "turns": "From the top: the best kernel so far, of as many trajectories as every policy has, mean speedup over "
    "PyTorch eager (0 for a task without a correct one); share of correct kernels; of kernels that were wrong one turn "
    "before, the share that is now correct; of those that were correct, the share that still is; share of kernels at "
    "least 95 % alike to the answer before (matching tokens of both, without comments and layout). Kernels of all "
    "seeds together.",
    "layernorm_case_study": "Each policy's best trajectory on one task, turn by turn: speedup over PyTorch eager, and "
    "the policy's own summary of what it changed. The memory line is every tensor moved once at the speed of a copy. "
    "Beside it, for reference, the trajectory that the paper's authors published; it is from another task size and "
    "machine, and the lines in it are this study's own measurement of that task on one H200.",
    "search": "What each strategy has found after so many kernels, and after so many seconds in which the device "
    "generated answers or ran kernels: mean speedup over PyTorch eager of each task's fastest correct kernel (0 "
    "without any), and share of tasks with a correct one. Seeds are lines of the same style.",
    "training": "What the trainer logged, step by step. What the paper states in numbers about its own trainings (of "
    "32 billion parameters on 8 GPUs) stands above the panels; its curves are not copied.",
    "training_turns": "Score and correctness of the kernels of each turn while training went on, running means.",
    "stability": "Share of chains of thought that do not open as they should, share of correct kernels, and gradient "
    "norm, by step, with and without the paper's two remedies: a loss of constant length, and gradients clipped to a "
    "norm of 0.05.",
    "ablations": "Means over the kernels of the second half of each run's steps, by what the run changes, with "
    "bootstrap 95 % intervals over tasks (over steps where a run's turns were not kept) and what the paper found.",
}


def caption(name: str, note: str | None = None) -> str:
    """What stands under the figure: what it shows, and what must be said of the study as a whole."""
    return " ".join(filter(None, [CAPTIONS.get(name, ""), note]))
