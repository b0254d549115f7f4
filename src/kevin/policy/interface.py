"""What the rollout loop asks of a policy, and nothing more.

A policy is given *requests*, not bare conversations: a request also says which turn of which trajectory it is. That
identity seeds the sampling of each answer on its own, so that an answer does not depend on what else is in the batch
(an engine's that drafts does), and it is what a recording is looked up by.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from pydantic import Field

from kevin.core.types import Completion, Conversation, Frozen, digest

OnCompletion = Callable[[int, Completion], None]
"""Called with a request's position and its completion, in any order, always from the caller's thread."""


class Sampling(Frozen):
    """How answers are drawn. Equal requests, sampling and weights give equal answers on the same machine."""

    temperature: float = Field(default=0.9, ge=0)
    """0 takes the likeliest token."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    max_tokens: int = Field(ge=1)
    seed: int = Field(default=0, ge=0)
    seeds: Mapping[str, int] = {}
    """By task id, in place of ``seed``."""


class Request(Frozen):
    """One turn of one trajectory that wants an answer."""

    conversation: Conversation
    task_id: str
    trajectory: int = Field(ge=0)
    turn: int = Field(ge=1)


class Policy(Protocol):
    name: str

    def count_tokens(self, conversation: Conversation) -> int:
        """Prompt tokens of a conversation, template included; an upper estimate where no tokenizer is at hand."""
        ...

    def complete(
        self, requests: Sequence[Request], sampling: Sampling, on_completion: OnCompletion | None = None
    ) -> list[Completion | None]:
        """Answers in the order of the requests; no requests, no answers.

        None only where there is nothing to say for a trajectory any more (a recording that ends); it ends there.

        Raises:
            PolicyError: no usable answer to a request. Answers given before were passed to ``on_completion``.
        """
        ...

    def close(self) -> None:
        """Free memory and connections; the policy is not used afterwards."""
        ...


def request_seed(sampling: Sampling, request: Request) -> int:
    """A seed of 31 bits for one answer, equal on every machine."""
    seed = sampling.seeds.get(request.task_id, sampling.seed)
    parts = (str(seed), request.task_id, str(request.trajectory), str(request.turn))
    return int(digest("request", *parts)[:8], 16) & 0x7FFFFFFF


_CHARS_PER_TOKEN = 3
"""Code has 3 to 4 characters a token: dividing by 3 overestimates a prompt, then cut early, not late."""
_MESSAGE_TOKENS = 4
"""Of the template around each message."""


def estimate_tokens(text: str) -> int:
    """From its characters, rounded up, where no tokenizer is at hand."""
    return math.ceil(len(text) / _CHARS_PER_TOKEN)


def estimated_tokens(conversation: Conversation) -> int:
    """The same of a conversation."""
    return sum(_MESSAGE_TOKENS + estimate_tokens(m.content) for m in conversation)
