"""Think, Prune, Train: fine-tuning on the model's own correct answers, the comparison without reinforcement.

A step samples as in reinforcement learning, keeps the fastest distinct correct answers of each task and turn, and
trains on them by maximum likelihood. There is no advantage, no clipping and nothing to learn from a wrong answer.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from kevin.core.config import Study
from kevin.core.types import Task
from kevin.policy.transformers import load_transformers
from kevin.rollout.settings import Judge
from kevin.train.checkpoint import CheckpointKeeper, checkpoint_written
from kevin.train.logprobs import answer_logprobs
from kevin.train.order import task_order
from kevin.train.policy import RecordingPolicy, Sample
from kevin.train.records import TIMES, Ended, MetricsLog, TrainingStoppedError, check_finite
from kevin.train.rows import Row
from kevin.train.step import StepPlayer, StepRollouts, rollout_record

NUM_KEPT = 4
"""Of a task and turn, the fastest distinct correct answers that are kept."""
NUM_EPOCHS = 2
"""Passes over the kept answers in one round."""


def prune(rows: Sequence[Row], samples: Sequence[Sample | None], num_kept: int) -> list[Sample]:
    """Of each task and turn the ``num_kept`` fastest correct answers, no kernel twice; the earlier among equals."""
    chosen: dict[tuple[str, int], list[Sample]] = {}
    seen: set[tuple[str, int, str]] = set()
    scored = [(r, s) for r, s in zip(rows, samples, strict=True) if r.played is not None and r.played.speedup]
    for row, sample in sorted(scored, key=lambda rs: -(rs[0].score or 0.0)):
        assert row.played is not None and row.played.kernel is not None and sample is not None
        kept = chosen.setdefault((row.task_id, row.turn), [])
        place = (row.task_id, row.turn, row.played.kernel.digest)
        if len(kept) < num_kept and place not in seen:
            kept.append(sample)
            seen.add(place)
    return [s for kept in chosen.values() for s in kept]


class PruneTrainer:
    """Model, optimiser and their checkpoints; one process."""

    def __init__(self, study: Study, out: Path) -> None:
        train = study.train
        self._study, self._keeper = study, CheckpointKeeper(out / "checkpoints")
        found = self._keeper.latest()
        config = study.policies[train.init].model_copy(update={"dtype": train.dtype, "backend": "transformers"})
        if found:
            config = config.model_copy(update={"model": str(found[0])})
        loaded = load_transformers(train.init, config)
        self.model, self.tokenizer = loaded.model, loaded.tokenizer
        self.policy = RecordingPolicy("trained", self.model, self.tokenizer)
        self._optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=train.learning_rate, weight_decay=0.0, eps=train.adam_epsilon
        )
        if found:
            self._optimizer.load_state_dict(torch.load(found[0] / "optimizer.pt", weights_only=True))
        self.done = found[1] if found else 0

    def fit(self, step: int, kept: Sequence[Sample]) -> dict[str, float]:
        """`NUM_EPOCHS` passes over the kept answers; mean loss in nats a token, and mean gradient norm."""
        train = self._study.train
        if not kept:
            return {"loss": 0.0, "grad_norm": 0.0}
        rng = random.Random(f"kevin prune, {self._study.seed + train.seed}, {step}")
        losses, norms = [], []
        self.model.train()
        for _ in range(NUM_EPOCHS):
            order = rng.sample(list(kept), k=len(kept))
            for start in range(0, len(order), train.micro_batch_size):
                loss = self._loss(order[start : start + train.micro_batch_size])
                self._optimizer.zero_grad(set_to_none=True)
                loss.backward()
                norms.append(float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), train.max_grad_norm)))
                losses.append(float(loss.detach()))
                check_finite(step, {"loss": losses[-1], "grad_norm": norms[-1]})
                self._optimizer.step()
        self.model.eval()
        return {"loss": sum(losses) / len(losses), "grad_norm": sum(norms) / len(norms)}

    def _loss(self, batch: Sequence[Sample]) -> torch.Tensor:
        pad = self.policy._pad_id
        prompt = max(len(s.prompt_ids) for s in batch)
        answer = max(len(s.completion_ids) for s in batch)
        ids, mask = [], []
        for s in batch:
            before, after = prompt - len(s.prompt_ids), answer - len(s.completion_ids)
            ids.append([pad] * before + s.prompt_ids + s.completion_ids + [pad] * after)
            mask.append([0] * before + [1] * (len(s.prompt_ids) + len(s.completion_ids)) + [0] * after)
        device = self.model.device
        logps, _ = answer_logprobs(
            self.model,
            torch.tensor(ids, device=device),
            torch.tensor(mask, device=device),
            answer,
            temperature=1.0,
            with_entropy=False,
        )
        return -logps.sum() / sum(len(s.completion_ids) for s in batch)

    def save(self, step: int) -> None:
        path = self._keeper.folder / f"checkpoint-{step}"
        with checkpoint_written(path):
            self.model.save_pretrained(path)
            self.tokenizer.save_pretrained(path)
            torch.save(self._optimizer.state_dict(), path / "optimizer.pt")
        self._keeper.finish(step, step)
        self.done = step


def think_prune_train(study: Study, run: str, tasks: Sequence[Task], judge: Judge, out: Path) -> Ended:
    """Run or resume. Arguments and files as those of reinforcement learning."""
    train = study.train
    order = task_order(tasks, train.num_steps, train.tasks_per_step, study.seed + train.seed)
    trainer, player = PruneTrainer(study, out), StepPlayer(study, run, tasks, judge, out)
    log = MetricsLog(out, first_step=trainer.done + 1)
    reason = None
    while trainer.done < train.num_steps and reason is None:
        start, step = time.monotonic(), trainer.done + 1
        played = player.play(step, [t.id for t in order[step - 1]], trainer.policy)
        kept = prune(played.rows, played.samples, NUM_KEPT)
        record: dict[str, Any] = {
            "step": step,
            **rollout_record(played, train.num_turns),
            "kept": len(kept),
            **trainer.fit(step, kept),
        }
        record[TIMES] = _seconds(played, time.monotonic() - start)
        player.write_turns(step, played.rows)
        reason, problem = log.end_step(record, train)
        if problem is not None:
            raise TrainingStoppedError(f"run {run}: {problem}")
        if step % train.save_every == 0 or step == train.num_steps or reason is not None:
            trainer.save(step)
            player.forget(step)
        else:
            trainer.done = step
    log.close()
    return Ended(trainer.done, reason, log.elapsed_s)


def _seconds(played: StepRollouts, total: float) -> dict[str, float]:
    update = total - played.seconds["rollout"]
    return {"step": total, **played.seconds, "update": update, "model": update}
