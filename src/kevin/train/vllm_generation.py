"""Generation in training with vLLM, through the engine that TRL keeps in step with the weights.

A colocated engine is driven directly: one wake-up and one sleep a step instead of one a turn (sleeping discards the
weights, so every wake-up pushes all of them again), and a seed for each answer.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from kevin.core.errors import PolicyError
from kevin.policy.decode import TokenIds
from kevin.policy.drafts import drafting
from kevin.policy.interface import Sampling
from kevin.policy.vllm import shared_programs, told_when_finished
from kevin.train.policy import OnAnswer


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
    from vllm import SamplingParams

    everyone = [(prompts, seeds)]
    own = 0
    if engine.tensor_parallel_size > 1:
        import torch.distributed as dist

        own = dist.get_rank(group=engine.tp_group)
        gathered: list[Any] = [None] * engine.tensor_parallel_size
        dist.all_gather_object(gathered, (prompts, seeds), group=engine.tp_group)
        everyone = gathered
    asked = [(p, s) for share in everyone for p, s in zip(*share, strict=True)]
    if not asked:
        return
    params = [
        SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            max_tokens=sampling.max_tokens,
            seed=seed,
            logprobs=0,
            flat_logprobs=True,
            detokenize=False,  # a colocated engine would make text of each token in the loop that decodes
        )
        for _, seed in asked
    ]
    first = sum(len(p) for p, _ in everyone[:own])
    told: set[int] = set()

    def tell(number: int, output: Any) -> None:
        i = number - first
        if 0 <= i < len(prompts) and i not in told:
            told.add(i)
            answer = output.outputs[0]
            on_answer(i, list(answer.token_ids), _sampled_logprobs(answer))

    with told_when_finished(engine.llm, tell):
        outputs = engine.llm.generate([{"prompt_token_ids": p} for p, _ in asked], params, use_tqdm=False)
    for number, output in enumerate(outputs):
        tell(number, output)


def _sampled_logprobs(answer: Any) -> list[float]:
    """Of the sampled tokens, of which ``logprobs=0`` keeps one a position."""
    flat = answer.logprobs
    if list(flat.token_ids) != list(answer.token_ids):
        raise PolicyError("the engine's log-probabilities are not those of the tokens that it sampled")
    return [float(value) for value in flat.logprobs]
