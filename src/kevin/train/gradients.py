"""Loss of packed rows on a model, and its gradients: a row a thread."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple, Self

import torch
from torch.nn.functional import cross_entropy

from kevin.train.packing import IGNORED, Batch, Row, collate

if TYPE_CHECKING:
    from transformers import Qwen3ForCausalLM

    from kevin.train.copying import Drills


COPYING_WEIGHT = 0.25
"""Of the loss on copying tokens drawn at random, beside that on transcripts."""


class Part(NamedTuple):
    """Rows whose loss counts with a weight."""

    batch: Batch
    weight: float


def answer_loss(model: Qwen3ForCausalLM, batch: Batch) -> torch.Tensor:
    """Mean cross-entropy over the answers' tokens; the vocabulary is only scored there."""
    hidden = model.model(
        input_ids=batch.tokens,
        position_ids=batch.positions,
        attention_mask=batch.mask,
        use_cache=False,
        num_spine=batch.num_spine,
        num_branches=batch.num_branches,
    ).last_hidden_state  # (B, L, H)
    scored = batch.labels != IGNORED
    return cross_entropy(model.lm_head(hidden[scored]), batch.labels[scored])


def parts_of(rows: Sequence[Row], pad: int) -> list[Part]:
    """Rows one by one, weighted so that the sum is the mean over all tokens of their answers."""
    sizes = [sum(len(b.tokens) for b in row.branches) for row in rows]
    return [Part(collate([row], pad), size / sum(sizes)) for row, size in zip(rows, sizes, strict=True)]


def step_parts(rows: Sequence[Row], drills: Drills, rng: random.Random, pad: int) -> list[Part]:
    """Those of the rows, then a drill."""
    return [*parts_of(rows, pad), Part(collate([drills.draw(rng)], pad), COPYING_WEIGHT)]


class Gradients:
    """Gradients of a weighted sum of losses, each of which a thread of its own works out; a context manager.

    Operators of this size are too small to share a core's work on one of them, but not to work on two of them at once.
    What comes out does not depend on the number of threads.
    """

    def __init__(self, model: Qwen3ForCausalLM) -> None:
        self._model = model
        self._weights = list(model.parameters())
        num_threads = len(os.sched_getaffinity(0))
        self._threads = ThreadPoolExecutor(num_threads, initializer=torch.set_num_threads, initargs=(1,))

    def set(self, parts: Sequence[Part]) -> list[float]:
        """Set the model's gradients. Returns the loss of each part, not weighted."""
        found = list(self._threads.map(self._of, parts))
        for i, weights in enumerate(self._weights):
            weights.grad = sum(gradients[i] for _, gradients in found)  # type: ignore[assignment]
        return [loss for loss, _ in found]

    def step(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        """Of each of them, which have no weights in common."""
        for _ in self._threads.map(lambda optimizer: optimizer.step(), optimizers):
            pass

    def _of(self, part: Part) -> tuple[float, tuple[torch.Tensor, ...]]:
        loss = answer_loss(self._model, part.batch.to(self._model.device))
        return float(loss.detach()), torch.autograd.grad(loss * part.weight, self._weights)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(cancel_futures=True)
