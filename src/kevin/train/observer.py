"""What a trainer's callbacks do: a record for every step, checkpoints kept, and the end of the run."""

from __future__ import annotations

import logging
import time
from typing import Any

from accelerate.utils import gather_object
from transformers import TrainerCallback

from kevin.core.config import Study
from kevin.train.checkpoint import CheckpointKeeper
from kevin.train.grpo import KernelTrainer, updates_of_a_step
from kevin.train.metrics import TIMES, MetricsLog, progress_line
from kevin.train.stability import TrainingStoppedError, check_finite, nothing_learnable, stop_reason
from kevin.train.step import StepPlayer, StepRollouts, rollout_record

logger = logging.getLogger(__name__)


class StepObserver(TrainerCallback):
    """Puts a step's record together from its rollouts and its gradient steps, keeps checkpoints, ends the run."""

    def __init__(self, study: Study, player: StepPlayer, keeper: CheckpointKeeper, log: MetricsLog | None) -> None:
        """``log``: None on all processes but the main one."""
        self._study, self._player, self._keeper, self._log = study, player, keeper, log
        self._updates: list[dict[str, float]] = []
        self._last = self._optimizer_start = time.monotonic()
        self.trainer: KernelTrainer | None = None
        self.stop_reason: str | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._last = time.monotonic()

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        if logs is None or "grad_norm" not in logs:
            return
        train = self._study.train
        step = (state.global_step - 1) // updates_of_a_step(train) + 1
        check_finite(step, {key: float(logs[key]) for key in ("loss", "grad_norm")})
        self._updates.append({k: float(v) for k, v in logs.items() if isinstance(v, int | float)})
        if state.global_step % updates_of_a_step(train):
            return
        assert self.trainer is not None
        rollouts = self.trainer.take_rollouts()
        record = self._record(step, rollouts)
        self._updates = []
        reason = problem = None
        if self._log is not None:
            self._player.write_turns(step, rollouts.rows)
            self._log.add(record)
            logger.info("%s", progress_line(record, train.num_steps, self._log.elapsed_s))
            reason, problem = self._reason(self._log), nothing_learnable(self._log.records, train)
        self.stop_reason, problem = gather_object([(reason, problem)])[0]
        if problem is not None:
            raise TrainingStoppedError(f"run {self._player.run}: {problem}")
        if self.stop_reason is not None:
            control.should_training_stop = control.should_save = True

    def _reason(self, log: MetricsLog) -> str | None:
        if (reason := stop_reason(log.records, self._study.train)) is not None:
            logger.warning("training ends early: %s", reason)
        return reason

    def _record(self, step: int, rollouts: StepRollouts) -> dict[str, Any]:
        """Numbers of the step; everything that depends on the clock is under ``seconds``."""
        now = time.monotonic()
        total, self._last = now - self._last, now
        spent = rollouts.seconds
        record: dict[str, Any] = {"step": step, **rollout_record(rollouts, self._study.train.num_turns)}
        names = {
            "loss": "loss",
            "grad_norm": "grad_norm",
            "learning_rate": "learning_rate",
            "entropy": "entropy",
            "kl": "kl",
            "clip_ratio": "clip_ratio/region_mean",
            "clip_ratio_low": "clip_ratio/low_mean",
            "clip_ratio_high": "clip_ratio/high_mean",
            "engine_logprob_error": "sampling/sampling_logp_difference/mean",
            "engine_importance_ratio": "sampling/importance_sampling_ratio/mean",
        }
        for name, key in names.items():
            values = [u[key] for u in self._updates if key in u]
            if values:
                record[name] = sum(values) / len(values)
        assert self.trainer is not None
        update = max(0.0, total - spent["rollout"])
        record[TIMES] = {"step": total, **spent, "update": update, "model": self.trainer.take_model_time()}
        return record

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._optimizer_start = time.monotonic()

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.trainer is not None:
            self.trainer.count_model_time(self._optimizer_start)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.trainer is not None:
            self.trainer.accelerator.wait_for_everyone()  # every process has written its share
        if state.is_world_process_zero:
            self._keeper.finish(state.global_step, state.global_step // updates_of_a_step(self._study.train))
            self._player.forget(state.global_step // updates_of_a_step(self._study.train))
