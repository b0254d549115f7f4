"""Transcripts as rows of tokens: one prompt, then several answers that each see the prompt but not one another.

A row is a *spine* (the conversation) with *branches* (answers) that hang at the turn they answer. Every branch gets the
positions and the view that it would have alone, so the loss is that of the single samples, at a fraction of the tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kevin.core.types import Conversation
from kevin.train.tokenizer import END, ROLES
from kevin.writer.transcripts import Transcript

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

IGNORED = -100
_NO_LIMIT = 1 << 30


class Row(NamedTuple):
    """One packed transcript; all lists have its length."""

    tokens: list[int]
    positions: list[int]
    segments: list[int]
    """0 on the spine, then one number for each branch."""
    limits: list[int]
    """How much of the spine a token may see, in tokens; causality holds besides."""
    labels: list[int]
    """The next token where it belongs to an answer, else `IGNORED`."""


class Batch(NamedTuple):
    """Padded rows. B rows, L tokens."""

    tokens: torch.Tensor
    """(B, L) int64"""
    positions: torch.Tensor
    """(B, L) int64"""
    mask: torch.Tensor
    """(B, 1, L, L) bool: query may see key"""
    labels: torch.Tensor
    """(B, L) int64"""


class Encoder:
    """Token ids of texts and transcripts; texts that come again are encoded once."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._end = int(tokenizer.convert_tokens_to_ids(END))
        self._roles = {r: int(tokenizer.convert_tokens_to_ids(t)) for r, t in ROLES.items()}
        self._known: dict[str, list[int]] = {}

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
        row = Row(
            list(spine),
            list(range(len(spine))),
            [0] * len(spine),
            [_NO_LIMIT] * len(spine),
            [IGNORED] * len(spine),
        )
        last = transcript.exchanges[-1].turn
        for exchange in transcript.exchanges:
            whole = exchange.turn == last
            prompt = spine if whole else self.prompt(transcript.conversation[: 2 * exchange.turn - 1])
            for answer in exchange.answers:
                _hang(row, len(prompt), [*self.text(answer), self._end], prompt[-1])
        return row


def _hang(row: Row, at: int, answer: Sequence[int], opening: int) -> None:
    """Add a branch below the first ``at`` tokens of the spine.

    Its first token is predicted by the spine's last one, which several branches share: that one is repeated here.
    """
    segment = max(row.segments) + 1
    tokens = [opening, *answer]
    row.tokens.extend(tokens)
    row.positions.extend(range(at - 1, at - 1 + len(tokens)))
    row.segments.extend([segment] * len(tokens))
    row.limits.extend([at - 1] * len(tokens))
    row.labels.extend([*answer, IGNORED])


def collate(rows: Iterable[Row], pad: int) -> Batch:
    """Pad rows to the longest and work out who sees whom."""
    import torch

    rows = list(rows)
    longest = max(len(r.tokens) for r in rows)

    def padded(lists: list[list[int]], fill: int) -> torch.Tensor:
        return torch.tensor([x + [fill] * (longest - len(x)) for x in lists])

    segments = padded([r.segments for r in rows], -1)
    limits = padded([r.limits for r in rows], 0)
    place = torch.arange(longest)
    causal = place[None, :, None] >= place[None, None, :]
    same = segments[:, :, None] == segments[:, None, :]
    spine = (segments[:, None, :] == 0) & (place[None, None, :] < limits[:, :, None])
    return Batch(
        tokens=padded([r.tokens for r in rows], pad),
        positions=padded([r.positions for r in rows], 0),
        mask=(causal & (same | spine))[:, None],
        labels=padded([r.labels for r in rows], IGNORED),
    )


def bucketed(rows: Sequence[Row], batch_size: int, pool: int = 8) -> list[list[Row]]:
    """Batches of rows of like length: of every ``pool`` batches' rows in order, the shortest go together."""
    batches = []
    for start in range(0, len(rows), batch_size * pool):
        part = sorted(rows[start : start + batch_size * pool], key=lambda r: len(r.tokens))
        cut = [part[i : i + batch_size] for i in range(0, len(part), batch_size)]
        # alternate short and long ones, so that no stretch of steps sees one length only
        batches += [b for pair in zip(cut[: len(cut) // 2], cut[len(cut) // 2 :][::-1], strict=False) for b in pair]
        batches += cut[len(cut) // 2 : len(cut) // 2 + len(cut) % 2]
    return batches
