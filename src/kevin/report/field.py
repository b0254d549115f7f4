"""The systems of the field side by side: each a configuration over the same loop, at equal judged kernels.

A system stands in the configuration under its name (config/field.yaml): one that trains as a run, whose policy is
evaluated; one that searches as a strategy of ``search``, over the policy that trainings start from; one with both is
its trained policy under its strategy. What the configuration lacks has no numbers. Beside ours stands what the system's
authors published, of other tasks, models and hardware.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from kevin.core.config import Study
from kevin.report import metrics
from kevin.report.captions import TrainingSummary
from kevin.report.metrics import mean_estimate, with_ends
from kevin.report.paper import OURS
from kevin.report.search import read_rollout

logger = logging.getLogger(__name__)


class System(NamedTuple):
    """One system, and what was published of it: columns of the table."""

    system: str
    """Key of its run, its strategy, or both."""
    label: str
    here: str
    """What of it is built here, and what is not."""
    published: str
    published_source: str
    published_tasks: str
    published_hardware: str | None
    """None where the source does not say."""


BASE = System(
    "base", "base model", "the policy that every training and search here starts from", "56 % solved, 0.53x: QwQ-32B",
    "arXiv 2507.11948, Table 1", "100 unseen tasks, 16 trajectories of 8 turns", "H200",
)  # fmt: skip
SYSTEMS = (
    System(
        "kevin", "Kevin", "multi-turn GRPO, discounted sum of later scores",
        "82 % solved, 1.10x", "arXiv 2507.11948, Table 1", "100 unseen tasks, 16 trajectories of 8 turns", "H200",
    ),
    System(
        "think_prune_train", "Think, Prune, Train", "fine-tuning on the fastest distinct correct answers of its own",
        "57.6 % Pass@1 (Gemma2-2B, from 41.9 %); no kernels", "arXiv 2504.18116, abstract", "GSM8K", None,
    ),
    System(
        "dr_kernel", "Dr. Kernel", "leave-one-out advantages turn by turn (TRLOO), speedup capped at 3, a reward for"
        " the profiled share of its own kernels (a GPU's judge measures it); without its rejection samplings",
        "31.6 % of kernels at least 1.2x (14B, Triton)", "arXiv 2602.05885, abstract", "KernelBench level 2", None,
    ),
    System(
        "cuda_agent", "CUDA Agent", "one long trajectory a task; reference and judge lie outside the candidate's"
        " reach; without its synthesised tasks, skills and file tools",
        "98.8 % pass, 96.8 % faster than torch.compile (levels 1 to 3: 100, 100, 92 %)", "arXiv 2602.24286",
        "KernelBench levels 1 to 3, up to 150 turns", None,
    ),
    System(
        "cudaforge", "CudaForge", "no training; the fastest and the last kernel with their profiles as feedback,"
        " without its second agent",
        "97.6 % correct, 1.68x (OpenAI o3)", "arXiv 2511.01884, abstract", "KernelBench",
        "RTX 6000; also A100, 4090, 3090",
    ),
    System(
        "evoengineer", "EvoEngineer", "no training; prompts show kernels drawn from the best of all trajectories",
        "highest averaged median 2.72x, at most 36.75x, 69.8 % valid", "arXiv 2510.03760, abstract",
        "91 CUDA kernels", None,
    ),
)  # fmt: skip
BAM = System("bam", "BAM", "nothing: it trains no kernels", "–", "–", "–", None)

COLUMNS = [
    "source", "system", "label", "here", "policy", "strategy", "kernels_training", "kernels_test", "num_tasks",
    *with_ends("correct", "speedup", "fast_1"),
    "published", "published_source", "published_tasks", "published_hardware",
]  # fmt: skip
"""``kernels_training``: judged while its policy was trained; ``kernels_test``: of one task."""


def field_rollouts(study: Study) -> dict[str, tuple[str, str | None]]:
    """Of each system that the configuration has, and of the base model: its policy, and its strategy if it has one."""
    base = study.train.init
    policies = {run: policy for policy in study.policies if (run := study.made_by(policy)) is not None}
    found: dict[str, tuple[str, str | None]] = {BASE.system: (base, None)}
    for system in SYSTEMS:
        strategy = system.system if system.system in study.search.strategies else None
        if system.system in policies or strategy is not None:
            found[system.system] = (policies.get(system.system, base), strategy)
    return found


def field_runs(study: Study) -> list[str]:
    """Runs whose policies are among `field_rollouts`."""
    found = (study.made_by(policy) for policy, _ in field_rollouts(study).values())
    return list(dict.fromkeys(run for run in found if run is not None))


def field_table(
    rollouts: dict[tuple[str, str | None], pd.DataFrame], summaries: Sequence[TrainingSummary], study: Study
) -> pd.DataFrame:
    """One row a system; see `COLUMNS`.

    Args:
        rollouts: score frames of all held-out tasks, by policy and strategy.
        summaries: of the trainings.

    ``correct``: share of tasks with a correct kernel among all that were spent on them; ``speedup``: of the fastest
    one, 0 without any, mean over tasks; ``fast_1``: share of tasks with a correct one at least as fast as eager.
    """
    configured = field_rollouts(study)
    steps = {s.run: s.num_steps for s in summaries if s.run is not None}
    rows = []
    for system in (BASE, *SYSTEMS, BAM):
        row: dict[str, Any] = {"source": OURS} | system._asdict()
        where = configured.get(system.system)
        if where is not None and where in rollouts:
            row |= {"policy": where[0], "strategy": where[1], **_cells(rollouts[where], study)}
            row["kernels_training"] = _kernels_trained_on(where[0], steps, study)
        rows.append(row)
    table = pd.DataFrame(rows, columns=COLUMNS)
    _warn_of_unequal(table)
    return table


def _cells(scores: pd.DataFrame, study: Study) -> dict[str, Any]:
    values = metrics.task_values(metrics.with_fast(metrics.trajectory_best(scores), [1.0]))
    judged = metrics.usable(scores).groupby(metrics.TASK).size()
    found = {name: mean_estimate(values[f"{name}_best"], study) for name in ("correct", "speedup", "fast_1")}
    head = {"num_tasks": len(values), "kernels_test": float(judged.mean()) if len(judged) else 0.0}
    return head | metrics.cells(found)


def _kernels_trained_on(policy: str, steps: dict[str, int | None], study: Study) -> int | None:
    """Of the run that made the policy; 0 of one that was not trained here, None where its summary is not there."""
    run = study.made_by(policy)
    if run is None:
        return 0
    done = steps.get(run)
    return None if done is None else done * study.for_run(run).train.batch_size


def _warn_of_unequal(table: pd.DataFrame) -> None:
    for column, where in (("kernels_test", "a task at test"), ("kernels_training", "training")):
        spent = table.loc[table[column] > 0, column]
        if spent.max() > 1.05 * spent.min():
            logger.warning("the systems did not have equal kernels of %s: %g to %g", where, spent.min(), spent.max())


def read_rollouts(turns: Sequence[Path], tasks: Path, study: Study) -> dict[tuple[str, str | None], pd.DataFrame]:
    """Rollouts of all splits as score frames, by policy and strategy. Raises DataError for what is no rollout."""
    found: dict[tuple[str, str | None], list[pd.DataFrame]] = {}
    for rollout in (read_rollout(path, tasks, study) for path in turns):
        found.setdefault((rollout.policy, rollout.strategy), []).append(rollout.scores)
    return {key: pd.concat(frames, ignore_index=True) for key, frames in found.items()}
