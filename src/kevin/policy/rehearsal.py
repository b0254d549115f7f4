"""Rehearsals: a model with random weights answers in full length, and recorded answers stand in for what it says.

So whatever costs time and memory is as it will be: tokens are generated and trained on, and kernels are judged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from kevin.core.types import Completion, Conversation
from kevin.policy.interface import OnCompletion, Policy, Request, Sampling
from kevin.policy.replay import read_jsonl

MARK = "random_weights"
"""File in the folder of a model whose weights are random, and of every policy that is trained from it."""
RECORDING = "random_weights.jsonl"
"""Beside it the answers, where there are some: several to each task, told apart by their trajectory."""
_STRIDE = 16
"""Turns of a trajectory are so many answers apart, so that sixteen trajectories say nothing twice."""


def has_random_weights(model: str | Path) -> bool:
    """Whether a folder was written by `kevin.train.random_model`, or trained from one that was."""
    return Path(model, MARK).exists()


@cache  # each step of a training asks
def _recorded(recording: Path) -> Mapping[str, Sequence[str]]:
    answers = defaultdict(list)
    for r in read_jsonl(recording):
        answers[r.task_id].append(r.completion)
    return dict(answers)


class RehearsedPolicy:
    """A policy of random weights whose answers are taken from a recording, in the same number of tokens."""

    def __init__(self, policy: Policy, recording: Path) -> None:
        self.name, self._policy, self._answers = policy.name, policy, _recorded(recording)

    def count_tokens(self, conversation: Conversation) -> int:
        return self._policy.count_tokens(conversation)

    def complete(
        self, requests: Sequence[Request], sampling: Sampling, on_completion: OnCompletion | None = None
    ) -> list[Completion | None]:
        def keep(i: int, completion: Completion) -> None:
            if on_completion is not None:
                on_completion(i, self._said(requests[i], completion))

        answers = self._policy.complete(requests, sampling, keep)
        return [a and self._said(r, a) for r, a in zip(requests, answers, strict=True)]

    def close(self) -> None:
        self._policy.close()

    def _said(self, request: Request, completion: Completion) -> Completion:
        """Of tasks without a recorded answer what the model says."""
        answers = self._answers.get(request.task_id)
        if not answers:
            return completion
        number = request.trajectory + _STRIDE * (request.turn - 1)
        return completion.model_copy(update={"text": answers[number % len(answers)], "finish_reason": "stop"})


def rehearsed(policy: Policy, folder: Path) -> Policy:
    """``policy``; where the folder of its model has a recording, with the answers of that."""
    recording = folder / RECORDING
    return RehearsedPolicy(policy, recording) if recording.exists() else policy
