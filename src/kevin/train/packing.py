"""Transcripts as rows of tokens: one prompt, then several answers that each see the prompt but not one another. Their
loss on a model, and its gradients: a row a thread.

A row is a *spine* (the conversation) with *branches* (answers) that hang at the turn they answer. Every branch gets the
positions and the view that it would have alone, so the loss is that of the single samples, at a fraction of the tokens.
"""

from __future__ import annotations

import math
import os
import random
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import torch
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

from kevin.train.school_batches import Sample

if TYPE_CHECKING:
    from transformers import Qwen3ForCausalLM

IGNORED = -100
COPYING_WEIGHT = 0.25
"""Of the loss on copying tokens drawn at random, beside that on transcripts."""
ATTENTION = "kevin_tree"
"""Name under which `register_attention` makes the attention of packed rows known to transformers."""


class Branch(NamedTuple):
    """An answer that hangs below the first ``at`` tokens of a spine."""

    at: int
    tokens: list[int]


class Row(NamedTuple):
    """One packed transcript."""

    spine: list[int]
    branches: list[Branch]

    @property
    def num_tokens(self) -> int:
        return len(self.spine) + sum(len(b.tokens) + 1 for b in self.branches)

    @property
    def num_positions(self) -> int:
        return max(b.at + len(b.tokens) for b in self.branches)


class Packed(NamedTuple):
    """A row as tensors. S tokens of spine, then N branches of L tokens each; T = S + N * L."""

    tokens: torch.Tensor
    """(1, T) int64"""
    positions: torch.Tensor
    """(1, T) int64"""
    mask: torch.Tensor
    """(N, 1, L, S + L) bool: whether a token of a branch sees a token of the spine, or of its own branch"""
    labels: torch.Tensor
    """(1, T) int64: the next token where it belongs to an answer, else `IGNORED`"""
    num_spine: int
    num_branches: int

    def to(self, device: torch.device) -> Packed:
        """The row with its tensors on ``device``."""
        moved = {name: getattr(self, name).to(device) for name in ("tokens", "positions", "mask", "labels")}
        return self._replace(**moved)


def row_of(samples: Sequence[Sample]) -> Row:
    """Of the samples of one transcript, whose last answer has the whole conversation before it."""
    branches = [Branch(len(tokens) - num, tokens[-num:]) for tokens, num in samples]
    return Row(samples[-1].tokens[: branches[-1].at], branches)


def pack(row: Row, pad: int) -> Packed:
    """Pad the branches to the longest one, and work out who sees whom.

    A branch begins with a copy of the prompt's last token, which several branches share on the spine: it predicts the
    branch's first token.
    """
    num_spine = len(row.spine)
    length = max(len(b.tokens) for b in row.branches)
    tokens, positions, labels = [*row.spine], [*range(num_spine)], [IGNORED] * num_spine
    for at, answer in row.branches:
        fill = length - len(answer)
        tokens += [row.spine[at - 1], *answer[:-1], *[pad] * fill]
        positions += range(at - 1, at - 1 + length)
        labels += [*answer, *[IGNORED] * fill]
    place = torch.arange(num_spine + length)
    seen = torch.tensor([at - 1 for at, _ in row.branches])
    on_spine = place < seen[:, None, None]  # (N, 1, S + L)
    own = place - num_spine
    in_branch = (own >= 0) & (own <= torch.arange(length)[:, None])  # (L, S + L)
    return Packed(
        tokens=torch.tensor([tokens]),
        positions=torch.tensor([positions]),
        mask=(on_spine | in_branch)[:, None],
        labels=torch.tensor([labels]),
        num_spine=num_spine,
        num_branches=len(row.branches),
    )


def register_attention() -> None:
    """Make the attention implementation `ATTENTION` known to transformers."""
    from transformers import AttentionInterface

    AttentionInterface.register(ATTENTION, _tree_attention)


def _tree_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor,
    *,
    num_spine: int,
    num_branches: int,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attention over a packed row: causal on the spine; each branch over its part of the spine and itself.

    Query, key and value are (1, heads, T, D), T as in `Packed`; the result is (1, T, heads, D).
    """

    def branches(x: torch.Tensor) -> torch.Tensor:  # (N, heads, L, D)
        own: torch.Tensor = x[0, :, num_spine:].unflatten(1, (num_branches, -1))
        return own.transpose(0, 1)

    def with_spine(x: torch.Tensor) -> torch.Tensor:  # (N, heads, S + L, D)
        return torch.cat([x[:, :, :num_spine].expand(num_branches, -1, -1, -1), branches(x)], dim=2)

    on_spine = [x[:, :, :num_spine] for x in (query, key, value)]
    spine = scaled_dot_product_attention(on_spine[0], on_spine[1], on_spine[2], is_causal=True)
    own = scaled_dot_product_attention(branches(query), with_spine(key), with_spine(value), attn_mask=attention_mask)
    own = own.transpose(0, 1).flatten(1, 2)[None]
    return torch.cat([spine, own], dim=2).transpose(1, 2).contiguous(), None


def bucketed(rows: Sequence[Row], batch_size: int, pool: int = 16) -> list[list[Row]]:
    """Batches of rows of like shape: of every ``pool`` batches' rows in order, the like go together."""
    batches = []
    for start in range(0, len(rows), batch_size * pool):
        part = sorted(rows[start : start + batch_size * pool], key=lambda row: (len(row.branches), row.num_tokens))
        batches += [part[i : i + batch_size] for i in range(0, len(part), batch_size)]
    return batches


class Part(NamedTuple):
    """A row whose loss counts with a weight."""

    packed: Packed
    weight: float


def answer_loss(model: Qwen3ForCausalLM, packed: Packed) -> torch.Tensor:
    """Mean cross-entropy over the answers' tokens; the vocabulary is only scored there."""
    hidden = model.model(
        input_ids=packed.tokens,
        position_ids=packed.positions,
        attention_mask=packed.mask,
        use_cache=False,
        num_spine=packed.num_spine,
        num_branches=packed.num_branches,
    ).last_hidden_state  # (1, T, H)
    scored = packed.labels != IGNORED
    return cross_entropy(model.lm_head(hidden[scored]), packed.labels[scored])


class Drills:
    """Rows of tokens drawn at random, whose answers are pieces of them: nothing but copying helps there."""

    def __init__(self, rows: Iterable[Row], special: Collection[int]) -> None:
        """``rows``: whose answers' tokens are drawn, common ones more often, as the root of their number."""
        counts = Counter(t for row in rows for b in row.branches for t in b.tokens)
        self._tokens = sorted(t for t in counts if t not in special)
        self._weights = [math.sqrt(counts[t]) for t in self._tokens]

    def draw(self, rng: random.Random, num_tokens: int = 100, num_pieces: int = 3, length: int = 40) -> Row:
        """A row of so many tokens and so many pieces of it."""
        spine = rng.choices(self._tokens, weights=self._weights, k=num_tokens)
        starts = [rng.randrange(num_tokens - length + 1) for _ in range(num_pieces)]
        return Row(spine, [Branch(num_tokens, spine[s : s + length]) for s in starts])


def step_parts(rows: Sequence[Row], drills: Drills, rng: random.Random, pad: int) -> list[Part]:
    """The rows, weighted so that the sum is the mean over all tokens of their answers; then a drill."""
    sizes = [sum(len(b.tokens) for b in row.branches) for row in rows]
    parts = [Part(pack(row, pad), size / sum(sizes)) for row, size in zip(rows, sizes, strict=True)]
    return [*parts, Part(pack(drills.draw(rng), pad), COPYING_WEIGHT)]


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
        self.map = self._threads.map
        """As the function `map`, by these threads."""

    def set(self, parts: Sequence[Part]) -> list[float]:
        """Set the model's gradients. Returns the loss of each part, not weighted."""
        found = list(self.map(self._of, parts))
        for i, weights in enumerate(self._weights):
            weights.grad = sum(gradients[i] for _, gradients in found)  # type: ignore[assignment]
        return [loss for loss, _ in found]

    def _of(self, part: Part) -> tuple[float, tuple[torch.Tensor, ...]]:
        loss = answer_loss(self._model, part.packed.to(self._model.device))
        return float(loss.detach()), torch.autograd.grad(loss * part.weight, self._weights)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(cancel_futures=True)
