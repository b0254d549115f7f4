"""What both trainings of a base model share: the schedule and record of their steps, checkpoints, what is said of them.

A step's batch and gradients are those of `kevin.train.base_model` and `kevin.train.school`.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from kevin.core import files
from kevin.core.texts import strict_json
from kevin.train.pretrained import save_pretrained
from kevin.train.records import check_finite

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

log = logging.getLogger(__name__)

SUMMARY = "summary.json"
"""What became of the training, in the model's folder."""
_MAX_GRAD_NORM = 1.0
_WARMUP_SHARE = 0.05
_LAST_SHARE = 0.1
"""Of the steps, whose mean loss is the final one."""


class Training:
    """A model, its optimizers, and what was recorded of its steps."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        num_steps: int,
        *,
        started: float | None = None,
        rate_key: str = "the learning rate",
        map_: Callable[..., Iterable[Any]] = map,
    ) -> None:
        """``optimizers``: at their peak rates; the first one's is recorded. ``started``: monotonic seconds; by default
        now. ``rate_key``: what sets the peak rate. ``map_``: by which optimizers without common weights step, side by
        side where it has threads."""
        self.model, self._optimizers, self.num_steps = model, optimizers, num_steps
        self._rate_key, self._map = rate_key, map_
        self._peaks = [float(optimizer.param_groups[0]["lr"]) for optimizer in optimizers]
        self.records: list[dict[str, float]] = []
        self._started = time.monotonic() if started is None else started

    def step(self, set_gradients: Callable[[], dict[str, float]]) -> dict[str, float]:
        """One more step; its record. ``set_gradients``: says the ``loss``, and what else belongs into the record.

        Raises:
            TrainingStoppedError: the loss is not a finite number.
        """
        number = len(self.records) + 1
        share = rate_share(number - 1, self.num_steps)
        for optimizer, peak in zip(self._optimizers, self._peaks, strict=True):
            for group in optimizer.param_groups:
                group["lr"] = peak * share
        found = set_gradients()
        norm = float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), _MAX_GRAD_NORM))
        check_finite(number, {"loss": found["loss"], "grad_norm": norm}, self._rate_key)
        for _ in self._map(lambda optimizer: optimizer.step(), self._optimizers):
            pass
        record = {
            "step": number,
            **found,
            "grad_norm": norm,
            "learning_rate": self._peaks[0] * share,
            "elapsed_s": time.monotonic() - self._started,
        }
        self.records.append(record)
        return record

    def state(self) -> dict[str, Any]:
        """From which `restore` goes on."""
        optimizers = [optimizer.state_dict() for optimizer in self._optimizers]
        return {"model": self.model.state_dict(), "optimizers": optimizers, "records": self.records}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        for optimizer, own in zip(self._optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(own)
        self.records = state["records"]
        self._started -= self.records[-1]["elapsed_s"]
        log.info("going on after step %d", len(self.records))


class Checkpoint:
    """One file with a training's state, replaced as a whole; of another training it is not used."""

    def __init__(self, folder: Path, identity: str) -> None:
        self._path, self._identity = folder / "state.pt", identity

    def read(self) -> dict[str, Any] | None:
        if not self._path.exists():
            return None
        state: dict[str, Any] = torch.load(self._path, map_location="cpu", weights_only=True)
        if state["identity"] != self._identity:
            log.warning("%s is of another training: this one starts anew", self._path)
            return None
        return state

    def write(self, state: Mapping[str, Any]) -> None:
        with files.atomic_path(self._path) as tmp:
            torch.save({"identity": self._identity, **state}, tmp)


def rate_share(step: int, num_steps: int) -> float:
    """Share of the peak learning rate: linear warm-up, then a cosine down to a twentieth."""
    warmup = max(1, round(_WARMUP_SHARE * num_steps))
    if step < warmup:
        return (step + 1) / warmup
    along = (step - warmup) / max(1, num_steps - warmup)
    return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * along))


def summarise_training(records: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """What later stages and readers need to know: steps made, the final loss in nats a token, seconds."""
    last = [r["loss"] for r in records[-max(1, round(_LAST_SHARE * len(records))) :]]
    return {"num_steps": len(records), "loss": sum(last) / len(last), "elapsed_s": records[-1]["elapsed_s"]}


def save_training(
    out_dir: Path,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    records: Sequence[Mapping[str, float]],
    summary: Mapping[str, Any],
) -> None:
    """Write a Hugging Face folder with what is said of the training: ``training.jsonl``, a record a step, and
    ``summary.json``. It appears complete or not at all.

    Raises:
        ConfigError: as `save_pretrained`.
    """
    with files.whole_folder(out_dir) as partial:
        save_pretrained(partial, model, tokenizer)
        (partial / "training.jsonl").write_text("".join(strict_json(r) + "\n" for r in records))
        (partial / SUMMARY).write_text(strict_json(summary, indent=1) + "\n")
