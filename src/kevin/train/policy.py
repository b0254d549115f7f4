"""The model in training as a policy of the rollout loop: it answers, and remembers the tokens that it answered with.
With vLLM it generates through the engine that TRL keeps in step with the weights.

A colocated engine is driven directly: one wake-up and one sleep a step instead of one a turn (sleeping discards the
weights, so every wake-up pushes all of them again), and a seed for each answer.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from kevin.core.errors import PolicyError
from kevin.core.files import append_line, read_lines
from kevin.core.texts import strict_json
from kevin.policy.decode import TokenIds
from kevin.policy.drafts import drafting
from kevin.policy.interface import Request, Sampling
from kevin.policy.transformers import Generate, OnAnswer, TransformersPolicy
from kevin.policy.vllm import generate, shared_programs

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
        self,
        name: str,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        generate: Generate | None = None,
    ) -> None:
        super().__init__(name, model, tokenizer, generate=generate)
        self._journal: Path | None = None
        self.samples: dict[Key, Sample] = {}

    def begin(self, journal: Path | None) -> None:
        """Forget the samples of the step before. ``journal``: file that keeps the new ones."""
        self._journal = journal
        self.samples = {}
        if journal is not None:
            advice = f"delete {journal.parent}, the step is generated again"
            self.samples = dict(read_lines(journal, _from_journal, advice))

    def _remember(
        self, request: Request, prompt_ids: TokenIds, completion_ids: TokenIds, logprobs: list[float] | None
    ) -> None:
        """The journal is written first: a completion that the rollout's checkpoint holds always has its tokens."""
        key = (request.task_id, request.trajectory, request.turn)
        self.samples[key] = sample = Sample(prompt_ids, completion_ids, logprobs)
        if self._journal is not None:
            append_line(self._journal, strict_json({"key": key, **asdict(sample)}))


def _from_journal(line: str) -> tuple[Key, Sample]:
    row = json.loads(line)
    task_id, trajectory, turn = row.pop("key")
    return (task_id, trajectory, turn), Sample(**row)


@contextmanager
def engines_draft(num_tokens: int) -> Iterator[None]:
    """An engine that TRL makes meanwhile drafts ``num_tokens`` at a time, and shares what it compiles with a policy's;
    TRL hands it no arguments of ours."""
    place: Any = import_module("trl.generation.vllm_generation")
    made = place.LLM
    place.LLM = functools.partial(made, **drafting(num_tokens))
    try:
        with shared_programs():
            yield
    finally:
        place.LLM = made


@contextmanager
def awake(trainer: Any) -> Iterator[None]:
    """The colocated engine with the present weights, its cache allocated; asleep again afterwards.

    Judging goes on meanwhile, on an engine that is idle: nothing generates while a kernel is timed.
    """
    engine = trainer.vllm_generation
    if engine._llm_weights_sleeping:
        engine.sync_weights()
    engine.llm.wake_up(tags=["kv_cache"])
    try:
        yield
    finally:
        engine.llm.sleep(level=2)
        engine._llm_weights_sleeping = True


def generate_with_vllm(
    engine: Any, prompts: list[TokenIds], seeds: list[int], sampling: Sampling, on_answer: OnAnswer
) -> None:
    """Answers of a colocated engine with their log-probabilities, told as they are finished.

    All processes call this equally often, also without prompts. Every one of a tensor-parallel group hands in the
    prompts of all of them, and keeps its own answers.
    """
    everyone = [(prompts, seeds)]
    own = 0
    if engine.tensor_parallel_size > 1:
        import torch.distributed as dist

        own = dist.get_rank(group=engine.tp_group)
        gathered: list[Any] = [None] * engine.tensor_parallel_size
        dist.all_gather_object(gathered, (prompts, seeds), group=engine.tp_group)
        everyone = gathered
    all_prompts, all_seeds = ([item for share in column for item in share] for column in zip(*everyone, strict=True))
    if not all_prompts:
        return
    first = sum(len(p) for p, _ in everyone[:own])

    def keep(number: int, answer: Any) -> None:
        if 0 <= number - first < len(prompts):
            on_answer(number - first, list(answer.token_ids), _sampled_logprobs(answer))

    # Without text: a colocated engine would make it of each token in the loop that decodes.
    settings = {"logprobs": 0, "flat_logprobs": True, "detokenize": False}
    generate(engine.llm, all_prompts, all_seeds, sampling, keep, **settings)


def _sampled_logprobs(answer: Any) -> list[float]:
    """Of the sampled tokens, of which ``logprobs=0`` keeps one a position."""
    flat = answer.logprobs
    if list(flat.token_ids) != list(answer.token_ids):
        raise PolicyError("the engine's log-probabilities are not those of the tokens that it sampled")
    return [float(value) for value in flat.logprobs]
