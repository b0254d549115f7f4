"""Transcripts as rows of tokens: one prompt, then several answers that each see the prompt but not one another.

A row is a *spine* (the conversation) with *branches* (answers) that hang at the turn they answer. Every branch gets the
positions and the view that it would have alone, so the loss is that of the single samples, at a fraction of the tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kevin.core.types import Conversation
from kevin.train.tokenizer import END, ROLES
from kevin.writer.transcripts import Transcript

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

IGNORED = -100
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
        spine = self.prompt(transcript.conversation)
        branches = []
        for exchange in transcript.exchanges:
            last = exchange is transcript.exchanges[-1]
            at = len(spine) if last else len(self.prompt(transcript.conversation[: 2 * exchange.turn - 1]))
            branches += [Branch(at, [*self.text(answer), self._end]) for answer in exchange.answers]
        return Row(spine, branches)


def collate(rows: Sequence[Row], pad: int) -> Batch:
    """Pad spines, branches and their number to the largest of the batch, and work out who sees whom.

    A branch begins with a copy of the prompt's last token, which several branches share on the spine: it predicts the
    branch's first token.
    """
    import torch

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
    import torch
    from torch.nn.functional import scaled_dot_product_attention

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
