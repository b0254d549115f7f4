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

from kevin.core.types import Conversation, Transcript
from kevin.train.tokenizer import END, ROLES

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, Qwen3ForCausalLM

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


class Batch(NamedTuple):
    """Padded rows. B rows, S tokens of spine, then N branches of L tokens each; T = S + N * L."""

    tokens: torch.Tensor
    """(B, T) int64"""
    positions: torch.Tensor
    """(B, T) int64"""
    mask: torch.Tensor
    """(B * N, 1, L, S + L) bool: whether a token of a branch sees a token of the spine, or of its own branch"""
    labels: torch.Tensor
    """(B, T) int64: the next token where it belongs to an answer, else `IGNORED`"""
    num_spine: int
    num_branches: int

    def to(self, device: torch.device) -> Batch:
        """The batch with its tensors on ``device``."""
        moved = {name: getattr(self, name).to(device) for name in ("tokens", "positions", "mask", "labels")}
        return self._replace(**moved)


def _token_id(tokenizer: PreTrainedTokenizerBase, token: str) -> int:
    found = tokenizer.convert_tokens_to_ids(token)
    assert isinstance(found, int)
    return found


class Encoder:
    """Token ids of texts and transcripts; texts that come again are encoded once."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._end = _token_id(tokenizer, END)
        self._roles = {r: _token_id(tokenizer, t) for r, t in ROLES.items()}
        self._known: dict[str, list[int]] = {}

    def know(self, texts: Iterable[str]) -> None:
        """Encode texts ahead, on all cores."""
        new = [t for t in dict.fromkeys(texts) if t not in self._known]
        if new:
            ids = self._tokenizer(new, add_special_tokens=False)["input_ids"]
            self._known.update(zip(new, ids, strict=True))

    def text(self, text: str) -> list[int]:
        ids = self._known.get(text)
        if ids is None:
            ids = self._known[text] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def prompt(self, conversation: Conversation) -> list[int]:
        """The same as the chat template with a generation prompt."""
        ids: list[int] = []
        for message in conversation:
            ids += [self._roles[message.role], *self.text(message.content), self._end]
        return [*ids, self._roles["assistant"]]

    def row(self, transcript: Transcript) -> Row:
        branches = []
        for prompt, answers in transcript.asked():
            at = len(self.prompt(prompt))
            branches += [Branch(at, [*self.text(answer), self._end]) for answer in answers]
        return Row(self.prompt(transcript.conversation), branches)


def collate(rows: Sequence[Row], pad: int) -> Batch:
    """Pad spines, branches and their number to the largest of the batch, and work out who sees whom.

    A branch begins with a copy of the prompt's last token, which several branches share on the spine: it predicts the
    branch's first token.
    """
    num_spine = max(len(r.spine) for r in rows)
    num_branches = max(len(r.branches) for r in rows)
    length = max(len(b.tokens) for r in rows for b in r.branches)
    tokens, positions, labels, seen = [], [], [], []
    for row in rows:
        spine_pad = num_spine - len(row.spine)
        row_tokens = row.spine + [pad] * spine_pad
        row_positions = [*range(len(row.spine)), *[0] * spine_pad]
        row_labels = [IGNORED] * num_spine
        branches = [*row.branches, *[Branch(1, [])] * (num_branches - len(row.branches))]
        for at, answer in branches:
            fill = length - len(answer)
            row_tokens += [row.spine[at - 1], *answer[:-1], *[pad] * (fill if answer else length - 1)]
            row_positions += range(at - 1, at - 1 + length)
            row_labels += [*answer, *[IGNORED] * fill]
            seen.append(at - 1)
        tokens.append(row_tokens)
        positions.append(row_positions)
        labels.append(row_labels)
    place = torch.arange(num_spine + length)
    on_spine = (place[None, :] < torch.tensor(seen)[:, None])[:, None, :]  # (B * N, 1, S + L)
    own = place[None, None, :] - num_spine
    in_branch = (own >= 0) & (own <= torch.arange(length)[None, :, None])  # (1, L, S + L)
    return Batch(
        tokens=torch.tensor(tokens),
        positions=torch.tensor(positions),
        mask=(on_spine | in_branch)[:, None],
        labels=torch.tensor(labels),
        num_spine=num_spine,
        num_branches=num_branches,
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
    """Attention over packed rows: causal on the spine; each branch over its part of the spine and itself.

    Query, key and value are (B, heads, T, D), T as in `Batch`; the result is (B, T, heads, D).
    """

    def branches(x: torch.Tensor) -> torch.Tensor:  # (B * N, heads, L, D)
        own: torch.Tensor = x[:, :, num_spine:].unflatten(2, (num_branches, -1))
        return own.transpose(1, 2).flatten(0, 1)

    def with_spine(x: torch.Tensor) -> torch.Tensor:  # (B * N, heads, S + L, D)
        spine = x[:, None, :, :num_spine].expand(-1, num_branches, -1, -1, -1).flatten(0, 1)
        return torch.cat([spine, branches(x)], dim=2)

    on_spine = [x[:, :, :num_spine] for x in (query, key, value)]
    spine = scaled_dot_product_attention(on_spine[0], on_spine[1], on_spine[2], is_causal=True)
    own = scaled_dot_product_attention(branches(query), with_spine(key), with_spine(value), attn_mask=attention_mask)
    own = own.unflatten(0, (-1, num_branches)).transpose(1, 2).flatten(2, 3)
    return torch.cat([spine, own], dim=2).transpose(1, 2).contiguous(), None


def bucketed(rows: Sequence[Row], batch_size: int, pool: int = 16) -> list[list[Row]]:
    """Batches of rows of like shape: of every ``pool`` batches' rows in order, the like go together."""
    batches = []
    for start in range(0, len(rows), batch_size * pool):
        part = sorted(rows[start : start + batch_size * pool], key=_shape)
        batches += [part[i : i + batch_size] for i in range(0, len(part), batch_size)]
    return batches


def _shape(row: Row) -> tuple[int, int]:
    return len(row.branches), row.num_tokens


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
        self.map = self._threads.map
        """As the function `map`, by these threads."""

    def set(self, parts: Sequence[Part]) -> list[float]:
        """Set the model's gradients. Returns the loss of each part, not weighted."""
        found = list(self.map(self._of, parts))
        for i, weights in enumerate(self._weights):
            weights.grad = sum(gradients[i] for _, gradients in found)  # type: ignore[assignment]
        return [loss for loss, _ in found]

    def _of(self, part: Part) -> tuple[float, tuple[torch.Tensor, ...]]:
        loss = answer_loss(self._model, part.batch.to(self._model.device))
        return float(loss.detach()), torch.autograd.grad(loss * part.weight, self._weights)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(cancel_futures=True)
