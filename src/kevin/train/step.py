"""The rollouts of one training step: the benchmark's loop, judge and rewards, and what is written about them."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kevin.core.config import Study
from kevin.core.errors import HarnessError
from kevin.core.files import TRAIN_TURNS, write_parquet
from kevin.core.lengths import response_tokens
from kevin.core.provenance import provenance
from kevin.core.types import Task, Turn, digest
from kevin.policy.interface import Sampling
from kevin.policy.load import rehearsed
from kevin.rollout.beside import judges_beside
from kevin.rollout.refine import refine
from kevin.rollout.settings import Judge, RolloutSettings, SharingJudge, TurnTiming, sum_seconds
from kevin.train.order import RepairStarts
from kevin.train.policy import RecordingPolicy, Sample
from kevin.train.records import repetition
from kevin.train.rows import OwnShares, Row, check_judged, rows_frame, step_metrics, training_rows

logger = logging.getLogger(__name__)

TEMPERATURE = 0.9
"""Of sampling in training."""


@dataclass
class StepRollouts:
    """One process's share of a step."""

    step: int
    rows: list[Row]
    samples: list[Sample | None]
    """Tokens of each row; None for a placeholder."""
    starts: dict[str, Turn] = field(default_factory=dict)
    """By task the turn of an earlier step that its trajectories went on from: repair tasks."""
    seconds: dict[str, float] = field(default_factory=dict)
    """``generate`` and ``judge``; ``rollout`` is both with our own work around them. ``beside``: judging meanwhile.
    ``stage_check`` and the like: of all kernels together, several of which are judged at once."""


class StepSettings(RolloutSettings):
    """Whoever plays a task draws the same answers, however the tasks of a step are shared out."""

    def sampling(self, turn: int, tasks: Sequence[Task]) -> Sampling:
        return super().sampling(turn, ())


class StepPlayer:
    """Plays steps of a run: the same arguments give the same rollouts, whatever this process played before."""

    def __init__(self, study: Study, run: str, tasks: Sequence[Task], judge: Judge, folder: Path) -> None:
        """``study``: as `Study.for_run` gives it. ``folder``: of the run."""
        self._study, self.run, self._judge, self._folder = study, run, judge, folder
        self._tasks = {t.id: t for t in tasks}
        self._repairs = RepairStarts(folder / "turns", study.seed + study.train.seed)

    def settings(self, step: int) -> RolloutSettings:
        """Of one step: its seed, and answers as long as they may be by then."""
        study, train = self._study, self._study.train
        seed = int(digest("train step", str(study.seed + train.seed), self.run, str(step))[:8], 16) & 0x7FFFFFFF
        own = {
            "num_trajectories": train.num_trajectories,
            "num_turns": train.num_turns,
            "temperature": TEMPERATURE,
            "max_response_tokens": response_tokens(study, step),
            "feedback": "own",
            "seed": seed,
        }
        return StepSettings.from_study(study).model_copy(update=own)

    def play(self, step: int, task_ids: Sequence[str], policy: RecordingPolicy) -> StepRollouts:
        """Roll out ``task_ids``, or go on where a killed run stopped in this step. Earlier steps have written theirs.

        Raises:
            HarnessError: the judge failed on most of it.
            KevinError: as `refine`.
        """
        start = time.monotonic()
        train = self._study.train
        timings: list[TurnTiming] = []
        folder = self.rollouts_folder(step, task_ids)
        policy.begin(folder / "tokens.jsonl")
        shares = OwnShares(folder / "own_shares.jsonl")
        starts = self._repairs.of_step(step, task_ids) if train.flat_groups == "repair" else {}
        turns: list[Turn] = []
        for _ in range(2):  # the harness's failures are tried once more
            turns = refine(
                [self._tasks[i] for i in task_ids],
                rehearsed(policy, Path(self._study.policies[train.init].model)),
                shares.watched(self._judge) if train.own_kernel_weight else self._judge,
                self.settings(step),
                folder,
                progress=False,
                on_timing=timings.append,
                beside=judges_beside(self._study.pool),
                starts=starts,
            )
            if all(t.outcome is not None for t in turns):
                break
        if isinstance(self._judge, SharingJudge):
            self._judge.rest()  # the next step has other tasks, and the gradient steps may need the memory
        check_judged(turns)
        rows = training_rows(
            turns,
            task_ids,
            num_trajectories=train.num_trajectories,
            num_turns=train.num_turns,
            config=self._study.reward,
            mode=train.advantage,
            bonuses={key: train.own_kernel_weight * share for key, share in shares.by_key.items()},
        )
        samples = [policy.samples[r.task_id, r.trajectory, r.turn] if r.played else None for r in rows]
        seconds = {
            "generate": sum(t.generate_s for t in timings),
            "judge": sum(t.judge_s for t in timings),
            "beside": sum(t.beside_s for t in timings),
            "rollout": time.monotonic() - start,
            **{f"stage_{stage}": s for stage, s in sum_seconds([t.stages_s for t in timings]).items()},
        }
        return StepRollouts(step, rows, samples, starts, seconds)

    def rollouts_folder(self, step: int, task_ids: Sequence[str]) -> Path:
        """Where a process keeps its rollouts of a step until a later checkpoint makes them dispensable."""
        return self._folder / "rollouts" / f"step_{step:05d}" / digest("tasks", *task_ids)[:8]

    def forget(self, step: int) -> None:
        """Delete the rollouts of all steps up to ``step``."""
        for path in (self._folder / "rollouts").glob("step_*"):
            if int(path.name[5:]) <= step:
                shutil.rmtree(path)

    def write_turns(self, step: int, rows: Sequence[Row]) -> None:
        """``turns/step_00001.parquet``: completions with verdicts, scores, returns and advantages."""
        path = self._folder / "turns" / f"step_{step:05d}.parquet"
        write_parquet(path, rows_frame(rows), TRAIN_TURNS, provenance(self._study.digest, run=self.run, step=step))


def rollout_record(rollouts: StepRollouts, num_turns: int) -> dict[str, float]:
    """The step's metrics as far as its rollouts go."""
    played = [r.played for r in rollouts.rows if r.played is not None]
    tokens = [s.completion_ids for s in rollouts.samples if s is not None]
    if not played:
        raise HarnessError(f"step {rollouts.step}: no answer at all")
    repairs = {"repairs": len(rollouts.starts) / len({r.task_id for r in rollouts.rows})} if rollouts.starts else {}
    return {
        **step_metrics(rollouts.rows, num_turns),
        **repairs,
        "repetition": sum(map(repetition, tokens)) / len(tokens),
        "num_completion_tokens": sum(map(len, tokens)),
        "num_kernels": sum(t.kernel is not None for t in played),
    }


def merged(parts: Sequence[StepRollouts]) -> StepRollouts:
    """The shares of all processes as one; seconds are the slowest process's."""
    keys = dict.fromkeys(k for p in parts for k in p.seconds)
    seconds = {k: max(p.seconds.get(k, 0.0) for p in parts) for k in keys}
    rows, samples = [r for p in parts for r in p.rows], [s for p in parts for s in p.samples]
    starts = {task: turn for p in parts for task, turn in p.starts.items()}
    return StepRollouts(parts[0].step, rows, samples, starts, seconds)
