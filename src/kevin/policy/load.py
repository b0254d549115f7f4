"""From a policy's configuration to a policy; and rehearsals.

In a rehearsal a model with random weights answers in full length, and recorded answers stand in for what it says: so
whatever costs time and memory is as it will be, tokens are generated and trained on, and kernels are judged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from kevin.core.config import PolicyConfig
from kevin.core.identity import content_digests
from kevin.core.types import Completion, Conversation
from kevin.policy.interface import OnCompletion, Policy, Request, Sampling
from kevin.policy.replay import ReplayPolicy, read_jsonl


def load_policy(name: str, config: PolicyConfig) -> Policy:
    """Load weights, open the recording or prepare the endpoint.

    Raises:
        DataError: a model folder or recording that is missing or damaged.
        UsageError: a model that cannot chat, a key that is not set.
        PolicyError: the backend is not installed or the model cannot be loaded.
    """
    if config.backend == "transformers":
        from kevin.policy.transformers import load_transformers

        return rehearsed(load_transformers(name, config), Path(config.model))
    if config.backend == "vllm":
        from kevin.policy.vllm import VllmPolicy

        return rehearsed(VllmPolicy(name, config), Path(config.model))
    if config.backend == "openai":
        from kevin.policy.openai import OpenAIPolicy

        return OpenAIPolicy(name, config)
    return ReplayPolicy(name, Path(config.model))


def policy_identity(config: PolicyConfig) -> dict[str, Any]:
    """Changes when a policy's answers may: its settings, and digests of the files of a local model or recording.

    As nested JSON values, keys as in the configuration. Where an endpoint is and how it is asked is no part of it.
    """
    return {**config.identity(), "files": content_digests(Path(config.model)) if config.has_files else {}}


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
