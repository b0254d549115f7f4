"""Drafts for vLLM's speculative decoding, from what its engine has generated before.

Kernels repeat themselves and each other, turns above all: most of an answer can be guessed from earlier ones. The
engine checks a whole draft in one pass of the model and keeps as much of it as its own sampling gives. Answers are
distributed as without drafts (rejection sampling, arXiv 2211.17192), but a seed stands for another one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

_LENGTHS = (24, 12, 6, 3)
_LENGTHS_L = np.array(_LENGTHS)
_MOST_VOTES = 4
_PLACE_BITS = 20
"""Of the number of stretches of one length that are remembered."""
_VOTE_BITS, _TAG_SHIFT = np.uint64(8), np.uint64(32)
_VOTES, _TOKEN = np.uint64(0xFF), np.uint64(0xFFFFFF)
_BASE, _MIXER = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
_POWERS = np.array([pow(int(_BASE), n, 1 << 64) for n in reversed(range(_LENGTHS[0]))], dtype=np.uint64)
_LEAVING_L = np.array([pow(int(_BASE), n, 1 << 64) for n in _LENGTHS], dtype=np.uint64)
"""What a token counts in a hash when one more comes behind it than the stretch is long."""


def drafting(num_tokens: int) -> dict[str, Any]:
    """What has vLLM's engine draft ``num_tokens`` at a time: further arguments of ``vllm.LLM``; none for 0."""
    if num_tokens == 0:
        return {}
    proposer = f"{BackoffDrafts.__module__}.{BackoffDrafts.__qualname__}"
    return {"speculative_config": {"method": "custom_class", "model": proposer, "num_speculative_tokens": num_tokens}}


class BackoffDrafts:
    """Drafts the token that followed the longest known stretch before it most often of late, and so on from there.

    A backoff n-gram model of all tokens that the engine has sampled, in the form of vLLM's ``custom_class`` proposer.
    The engine waits for it in every step, so all requests are looked up at once.

    Shape suffixes: B requests, L lengths of stretches, N sampled tokens.
    """

    def __init__(self, vllm_config: Any) -> None:
        self._most_drafted = int(vllm_config.speculative_config.num_speculative_tokens)
        self._most_tokens = int(vllm_config.model_config.max_model_len)
        self._known = np.zeros(len(_LENGTHS) << _PLACE_BITS, dtype=np.uint64)
        """What followed stretches, where their hashes say: 32 bits of the hash from the highest on, 24 of a token, 8 of
        its votes ahead. A stretch takes the place of another one that falls there."""

    def load_model(self, *_: Any) -> None:
        """There is none; engines on CPUs call it all the same."""

    def propose(
        self,
        sampled_token_ids: Sequence[Sequence[int]],
        num_tokens_no_spec: np.ndarray,
        token_ids_cpu: np.ndarray,
        **_: Any,
    ) -> list[list[int]]:
        """A draft for each request.

        Args:
            sampled_token_ids: by the last step; none where a prompt is still being read.
            num_tokens_no_spec: (requests,) of prompt and answer so far, the sampled ones included.
            token_ids_cpu: (requests, max_model_len) these tokens.
        """
        drafts: list[list[int]] = [[] for _ in sampled_token_ids]
        num_new = np.array([len(sampled) for sampled in sampled_token_ids], dtype=np.int64)
        rows_B = np.flatnonzero(num_new)
        if not len(rows_B):
            return drafts
        ends_B = np.asarray(num_tokens_no_spec)[rows_B].astype(np.int64)
        self._learn(token_ids_cpu, rows_B, ends_B, num_new[rows_B])
        room_B = np.minimum(self._most_drafted, self._most_tokens - ends_B - 1)
        drafted, lengths_B = self._draft(token_ids_cpu, rows_B, ends_B, room_B)
        for row, tokens, length in zip(rows_B.tolist(), drafted.tolist(), lengths_B.tolist(), strict=True):
            drafts[row] = tokens[:length]
        return drafts

    def _learn(self, table: np.ndarray, rows_B: np.ndarray, ends_B: np.ndarray, num_new_B: np.ndarray) -> None:
        """A vote of each sampled token; of those that follow the same stretch in the same step, of the last one."""
        rows_N = np.repeat(rows_B, num_new_B)
        back_N = np.repeat(np.cumsum(num_new_B), num_new_B) - np.arange(len(rows_N))
        at_N = np.repeat(ends_B, num_new_B) - back_N
        tokens_N1 = table[rows_N, at_N].astype(np.uint64)[:, None] & _TOKEN
        places_NL, tags_NL = _places(_hashes(_before(table, rows_N, at_N)))
        entries_NL = self._known[places_NL]
        known_NL, votes_NL = entries_NL >> _VOTE_BITS & _TOKEN, entries_NL & _VOTES
        votes_NL[entries_NL >> _TAG_SHIFT != tags_NL] = 0
        agrees_NL = known_NL == tokens_N1
        stays_NL = ~agrees_NL & (votes_NL > 1)
        kept_NL = np.where(stays_NL, known_NL, tokens_N1)
        votes_NL = np.where(stays_NL, votes_NL - 1, np.where(agrees_NL, np.minimum(votes_NL + 1, _MOST_VOTES), 1))
        new_NL = tags_NL << _TAG_SHIFT | kept_NL << _VOTE_BITS | votes_NL
        is_whole_NL = at_N[:, None] >= _LENGTHS_L
        self._known[places_NL[is_whole_NL]] = new_NL[is_whole_NL]

    def _draft(
        self, table: np.ndarray, rows_B: np.ndarray, ends_B: np.ndarray, room_B: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Tokens, (B, most that are drafted), and how many of them count."""
        longest, num = _LENGTHS[0], len(rows_B)
        tokens = np.zeros((num, longest + self._most_drafted), dtype=np.uint64)
        tokens[:, :longest] = _before(table, rows_B, ends_B)
        hashes_BL = _hashes(tokens[:, :longest])
        lengths_B = np.zeros(num, dtype=np.int64)
        for i in range(self._most_drafted):
            places_BL, tags_BL = _places(hashes_BL)
            entries_BL = self._known[places_BL]
            hits_BL = (entries_BL >> _TAG_SHIFT == tags_BL) & (entries_BL & _VOTES > 0)
            hits_BL &= (ends_B + i)[:, None] >= _LENGTHS_L
            goes_on_B = hits_BL.any(1) & (lengths_B == i) & (room_B > i)
            if not goes_on_B.any():
                break
            chosen_B = entries_BL[np.arange(num), hits_BL.argmax(1)] >> _VOTE_BITS & _TOKEN
            tokens[:, longest + i] = chosen_B
            lengths_B += goes_on_B
            hashes_BL = hashes_BL * _BASE + chosen_B[:, None] - tokens[:, longest + i - _LENGTHS_L] * _LEAVING_L
        return tokens[:, longest:], lengths_B


def _before(table: np.ndarray, rows: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """(rows, longest stretch) of the tokens before ``ends``; anything where there are fewer."""
    columns = ends[:, None] + np.arange(-_LENGTHS[0], 0)
    before: np.ndarray = table[rows[:, None], np.maximum(columns, 0)].astype(np.uint64)
    return before


def _hashes(tokens: np.ndarray) -> np.ndarray:
    """Polynomial ones, modulo 2^64, of the last tokens of each row, (rows, L)."""
    weighted = tokens * _POWERS
    return np.stack([weighted[:, -length:].sum(1, dtype=np.uint64) for length in _LENGTHS], 1)


def _places(hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where in the table, and the 32 bits by which the one that lies there is known; both (rows, L)."""
    mixed = hashes * _MIXER
    mixed ^= mixed >> np.uint64(29)
    mixed *= _MIXER
    places = (mixed >> np.uint64(64 - _PLACE_BITS)).astype(np.int64) + (np.arange(len(_LENGTHS)) << _PLACE_BITS)
    return places, mixed & np.uint64(0xFFFFFFFF)
