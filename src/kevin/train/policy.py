"""The model in training as a policy of the rollout loop: it answers, and remembers the tokens that it answered with."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from kevin.core.files import append_line, read_lines
from kevin.core.texts import strict_json
from kevin.core.types import Completion
from kevin.policy.decode import TokenIds, decode
from kevin.policy.interface import OnCompletion, Request, Sampling, request_seed
from kevin.policy.transformers import TransformersPolicy

OnAnswer = Callable[[int, TokenIds, list[float] | None], None]
"""Position, tokens (an end token included), and their log-probabilities where the sampler reports them."""

Generate = Callable[[list[TokenIds], list[int], Sampling, OnAnswer], None]
"""Prompts, a seed each, how to sample, what to call with each answer. Called once a turn, also without prompts."""

Key = tuple[str, int, int]
"""Task id, trajectory, turn."""


@dataclass(frozen=True)
class Sample:
    prompt_ids: TokenIds
    completion_ids: TokenIds
    logprobs: list[float] | None = None


class RecordingPolicy(TransformersPolicy):
    """``samples`` holds what was generated since `begin`; with a journal also what a killed run generated before."""

    def __init__(
        self, name: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, generate: Generate
    ) -> None:
        super().__init__(name, model, tokenizer)
        self._generate = generate
        self._journal: Path | None = None
        self.samples: dict[Key, Sample] = {}

    def begin(self, journal: Path | None) -> None:
        """Forget the samples of the step before. ``journal``: file that keeps the new ones."""
        self._journal = journal
        self.samples = {}
        if journal is not None:
            advice = f"delete {journal.parent}, the step is generated again"
            self.samples = dict(read_lines(journal, _from_journal, advice))

    def complete(
        self, requests: Sequence[Request], sampling: Sampling, on_completion: OnCompletion | None = None
    ) -> list[Completion | None]:
        encoded = [self.encode(r.conversation) for r in requests]
        self._check_lengths([ids for ids, _ in encoded], sampling)
        completions: list[Completion | None] = [None] * len(requests)

        def keep(i: int, tokens: TokenIds, logprobs: list[float] | None) -> None:
            prompt_ids, opening = encoded[i]
            self._remember(requests[i], Sample(prompt_ids, tokens, logprobs))
            completions[i] = completion = self._completion(len(prompt_ids), opening, tokens)
            if on_completion is not None:
                on_completion(i, completion)

        self._generate([ids for ids, _ in encoded], [request_seed(sampling, r) for r in requests], sampling, keep)
        return completions

    def generate_with(
        self,
        model: PreTrainedModel,
        prompts: list[TokenIds],
        seeds: list[int],
        sampling: Sampling,
        on_answer: OnAnswer,
    ) -> None:
        """A `Generate` that samples from the weights of ``model``, this policy's own or what it stands in."""
        was_training = model.training
        model.eval()
        decode(
            model,
            prompts,
            seeds,
            self.decoding(sampling),
            token_budget=self.token_budget,
            on_answer=lambda i, tokens: on_answer(i, tokens, None),
        )
        model.train(was_training)

    def _remember(self, request: Request, sample: Sample) -> None:
        """The journal is written first: a completion that the rollout's checkpoint holds always has its tokens."""
        key = (request.task_id, request.trajectory, request.turn)
        self.samples[key] = sample
        if self._journal is not None:
            append_line(self._journal, strict_json({"key": key, **asdict(sample)}))


def _from_journal(line: str) -> tuple[Key, Sample]:
    row = json.loads(line)
    task_id, trajectory, turn = row.pop("key")
    return (task_id, trajectory, turn), Sample(**row)
