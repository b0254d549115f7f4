"""Files in, files out: a rollout of one policy on one split, as a rule of the workflow runs it."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kevin.core import files
from kevin.core.config import Study
from kevin.core.errors import ConfigError, HarnessError
from kevin.core.progress import Progress, progress
from kevin.core.provenance import provenance
from kevin.core.resume import set_aside
from kevin.core.types import Kernel, Task, Turn, Verdict
from kevin.policy.load import load_policy, policy_identity
from kevin.rollout.beside import judges_beside
from kevin.rollout.refine import refine
from kevin.rollout.settings import Judge, RolloutSettings, TurnTiming

logger = logging.getLogger(__name__)

MAX_UNJUDGED_SHARE = 0.05
"""Of trajectories that the harness failed on; a file with more of them is not written."""


def run_rollout(
    study: Study,
    policy_name: str,
    split: str,
    tasks_path: Path,
    out_path: Path,
    *,
    store: Path | None = None,
    show_progress: bool = True,
) -> None:
    """Roll out policy ``policy_name`` on a split of ``tasks_path`` and write ``out_path`` (turns.parquet).

    Beside it: ``timing.jsonl``, one line per turn that was worked on, and until all is done ``checkpoint/``, from which
    a killed run goes on. Trajectories that the harness failed on are tried once more at the end. Verdicts are looked up
    in and added to ``store`` (default: the study's own).

    Raises:
        ConfigError: no such policy.
        HarnessError: over `MAX_UNJUDGED_SHARE` of the trajectories still have no verdict.
        KevinError: as `refine` and `load_policy`.
    """
    config = study.policies.get(policy_name)
    if config is None:
        raise ConfigError(f"no policy {policy_name!r} in the configuration; there are {', '.join(study.policies)}")
    tasks = files.read_tasks(tasks_path, split)
    settings = RolloutSettings.from_study(study)
    folder = out_path.parent / "checkpoint"
    timing_path = out_path.parent / "timing.jsonl"
    if not folder.exists():
        timing_path.unlink(missing_ok=True)
    identity = {"policies": {policy_name: policy_identity(config)}, "judge": study.judge.model_dump(mode="json")}

    def save_timing(timing: TurnTiming) -> None:
        files.append_line(timing_path, timing.model_dump_json())

    policy = load_policy(policy_name, config)
    beside = judges_beside(study.pool, config)
    try:
        with open_judge(study, store, show_progress and not beside) as judge:
            for _ in range(2):
                turns = refine(
                    tasks,
                    policy,
                    judge,
                    settings,
                    folder,
                    progress=show_progress,
                    identity=identity,
                    on_timing=save_timing,
                    beside=beside,
                )
                if not _unjudged(turns):
                    break
    finally:
        policy.close()
    write_results(out_path, turns, study, policy=policy_name, split=split)
    if not _unjudged(turns):
        shutil.rmtree(folder, ignore_errors=True)


def write_results(out_path: Path, turns: Sequence[Turn], study: Study, *, policy: str, split: str) -> None:
    """Write turns.parquet, unless too much of it has no verdict (HarnessError). An earlier one is set aside."""
    unjudged = _unjudged(turns)
    num_trajectories = len({(t.task_id, t.trajectory) for t in turns})
    if unjudged:
        message = f"{len(unjudged)} of {num_trajectories} trajectories of {policy} on {split} have no verdict"
        first = f"first: {unjudged[0].task_id}, trajectory {unjudged[0].trajectory}, {unjudged[0].reason}"
        if len(unjudged) > MAX_UNJUDGED_SHARE * num_trajectories:
            raise HarnessError(f"{message} ({first}); see the log, then run again: all that was judged is kept")
        logger.warning("%s (%s): they are left out of every average", message, first)
    record = provenance(study.digest, policy=policy, split=split, num_unjudged=len(unjudged))
    if out_path.exists():
        logger.warning("%s: rolled out anew; what it held is kept as %s", out_path, set_aside(out_path).name)
    files.write_turns(out_path, turns, record)


@contextmanager
def open_judge(study: Study, store: Path | None, show_progress: bool) -> Iterator[Judge]:
    """The study's judge pool, with a progress bar around every call. ``store``: by default the study's own."""
    from kevin.judge.pool import JudgePool

    folder = (store or Path(study.results) / "store").resolve()  # workers have another working directory
    with JudgePool(study.judge, folder, study.pool) as pool:

        def judge(pairs: Sequence[tuple[Task, Kernel]]) -> list[Verdict | HarnessError]:
            if not show_progress:
                return pool.judge(pairs)
            bar: Progress[None] = progress(len(pairs), "judge", "kernels")
            with bar:
                return pool.judge(pairs, on_verdict=lambda *_: bar.update())

        yield judge


def _unjudged(turns: Sequence[Turn]) -> list[Turn]:
    return [t for t in turns if t.outcome is None]
