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
_MOST_STRETCHES = 1_000_000
"""Of one length; then all of these are forgotten."""
_MOST_VOTES = 4
_BASE = _MOST_VOTES + 1


def drafting(num_tokens: int) -> dict[str, Any]:
    """What has vLLM's engine draft ``num_tokens`` at a time: further arguments of ``vllm.LLM``; none for 0."""
    if num_tokens == 0:
        return {}
    proposer = f"{BackoffDrafts.__module__}.{BackoffDrafts.__qualname__}"
    return {"speculative_config": {"method": "custom_class", "model": proposer, "num_speculative_tokens": num_tokens}}


class BackoffDrafts:
    """Drafts the token that followed the longest known stretch before it most often of late, and so on from there.

    A backoff n-gram model of all tokens that the engine has sampled, in the form of vLLM's ``custom_class`` proposer.
    """

    def __init__(self, vllm_config: Any) -> None:
        self._most_drafted = int(vllm_config.speculative_config.num_speculative_tokens)
        self._most_tokens = int(vllm_config.model_config.max_model_len)
        self._followed: list[dict[int, int]] = [{} for _ in _LENGTHS]
        """By the hash of a stretch, in one number: a token that followed it, and by how many votes it is ahead."""

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
        pasts = []
        for i, sampled in enumerate(sampled_token_ids):
            end = int(num_tokens_no_spec[i])
            start = max(0, end - len(sampled) - _LENGTHS[0])
            past = token_ids_cpu[i, start:end].tolist() if sampled else []
            self._learn(past, len(sampled))
            pasts.append(past)
        room = [min(self._most_drafted, self._most_tokens - int(n) - 1) for n in num_tokens_no_spec[: len(pasts)]]
        return [self._draft(past[-_LENGTHS[0] :], most) for past, most in zip(pasts, room, strict=True)]

    def _learn(self, past: list[int], num_new: int) -> None:
        for length, followed in zip(_LENGTHS, self._followed, strict=True):
            if len(followed) > _MOST_STRETCHES:
                followed.clear()
            for at in range(max(length, len(past) - num_new), len(past)):
                stretch, token = hash(tuple(past[at - length : at])), past[at]
                known, votes = divmod(followed.get(stretch, 0), _BASE)
                if votes and known != token:
                    known, votes = (known, votes - 1) if votes > 1 else (token, 1)
                else:
                    known, votes = token, min(votes + 1, _MOST_VOTES)
                followed[stretch] = known * _BASE + votes

    def _draft(self, past: list[int], most: int) -> list[int]:
        tokens = list(past)
        while past and len(tokens) - len(past) < most:
            for length, followed in zip(_LENGTHS, self._followed, strict=True):
                if length <= len(tokens) and (entry := followed.get(hash(tuple(tokens[-length:])))) is not None:
                    tokens.append(entry // _BASE)
                    break
            else:
                break
        return tokens[len(past) :]
