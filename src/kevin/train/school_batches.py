"""Conversations as batches of tokens: prompts by the model's chat template, the loss on the answers alone.

Shape suffixes: N tokens of all answers, H hidden size, V vocabulary.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from kevin.core.errors import ConfigError
from kevin.core.types import Transcript
from kevin.policy.chat import prompt_text
from kevin.train.unpadded import answer_states

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_PATIENCE = 8
"""Chunks without a conversation that fits, after which none is expected."""
_ATTENTION_TOKENS = 4500
"""Length at which attention costs a model of 135 million parameters as much as all else, by its operations."""


Kind = Literal["trained on", "held out", "held out later"]
"""What conversations are for: training; or the loss on first, or on later turns, in styles that are never trained on.
"""


class Corpus(Protocol):
    """Whoever writes the school's conversations, without end and always the same."""

    identity: str | None
    """Digest of what the study's configuration does not say; None where that is all."""
    has_held_out_later: bool

    def chunks(self, first: int = 0, kind: Kind = "trained on") -> Iterator[list[Transcript]]:
        """Some at a time, in order, from number ``first`` on."""


class Sample(NamedTuple):
    """A prompt with one answer to it, the end token included."""

    tokens: list[int]
    num_answer: int
    """Tokens at the end that are the answer's."""


MicroBatch = list[Sample]
"""Samples of one forward and backward pass."""


class SchoolBatch(NamedTuple):
    """What one gradient step learns from."""

    shares: list[list[MicroBatch]]
    """Of each device."""
    next_conversation: int
    """Number of the first conversation that comes after it."""

    @property
    def samples(self) -> list[Sample]:
        return [sample for share in self.shares for part in share for sample in part]

    @property
    def num_answer_tokens(self) -> int:
        return sum(s.num_answer for s in self.samples)

    @property
    def num_tokens(self) -> int:
        return sum(len(s.tokens) for s in self.samples)


def encode(written: Sequence[Transcript], tokenizer: PreTrainedTokenizerBase) -> list[list[Sample]]:
    """The samples of each transcript: every answer with its own prompt, as a policy would see it."""
    pairs: list[tuple[int, str, str]] = []
    for i, transcript in enumerate(written):
        for conversation, answers in transcript.asked():
            prompt, opening = prompt_text(tokenizer, conversation)
            pairs += [(i, prompt, answer.removeprefix(opening)) for answer in answers]
    texts = list(dict.fromkeys(text for _, *both in pairs for text in both))
    ids = dict(zip(texts, tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else [], strict=True))
    samples: list[list[Sample]] = [[] for _ in written]
    for i, prompt, answer in pairs:
        tokens = [*ids[prompt], *ids[answer], tokenizer.eos_token_id]
        samples[i].append(Sample(tokens, len(ids[answer]) + 1))
    return samples


def deal(samples: Sequence[Sample], num: int) -> list[list[Sample]]:
    """The samples in ``num`` parts that take about as long, those of like length together, the longest first.

    Attention pads to the longest of a micro-batch, so that parts of mixed lengths would take longer.
    """
    ordered = sorted(samples, key=lambda s: len(s.tokens), reverse=True)
    efforts = [len(s.tokens) + len(s.tokens) ** 2 / _ATTENTION_TOKENS for s in ordered]
    total = sum(efforts)
    hands: list[list[Sample]] = [[] for _ in range(num)]
    for sample, own, until in zip(ordered, efforts, accumulate(efforts), strict=True):
        hands[int(num * (until - own / 2) / total)].append(sample)
    return hands


def cut(samples: Sequence[Sample], max_tokens: int, *, padded: bool = True) -> list[MicroBatch]:
    """Micro-batches of samples of like length, each of at most ``max_tokens``, the longest first.

    Args:
        padded: whether each counts as long as the longest of its micro-batch.
    """
    parts: list[MicroBatch] = []
    num = 0
    for sample in sorted(samples, key=lambda s: len(s.tokens), reverse=True):
        size = len(parts[-1][0].tokens) if parts and padded else len(sample.tokens)
        if parts and num + size <= max_tokens:
            parts[-1].append(sample)
            num += size
        else:
            parts.append([sample])
            num = len(sample.tokens)
    return parts


def school_batches(
    chunks: Iterator[list[Transcript]],
    tokenizer: PreTrainedTokenizerBase,
    *,
    first: int,
    batch_tokens: int,
    micro_batch_tokens: int,
    longest: int,
    padded: bool = True,
    num_devices: int = 1,
) -> Iterator[SchoolBatch]:
    """Whole conversations until there are ``batch_tokens``, again and again.

    Args:
        chunks: from conversation number ``first`` on.
        padded: as `cut`.
        longest: samples of more tokens are left out.
        num_devices: that share a step.

    Raises:
        ConfigError: no sample is as short as that.
    """
    number = first
    batch: list[Sample] = []
    num_tokens = missed = 0
    for chunk in chunks:
        fitting = 0
        for samples in encode(chunk, tokenizer):
            number += 1
            kept = [s for s in samples if len(s.tokens) <= longest]
            fitting += len(kept)
            batch += kept
            num_tokens += sum(len(s.tokens) for s in kept)
            if num_tokens >= batch_tokens:
                hands = deal(batch, num_devices)
                yield SchoolBatch([cut(hand, micro_batch_tokens, padded=padded) for hand in hands], number)
                batch, num_tokens = [], 0
        missed = 0 if fitting else missed + 1
        if missed >= _PATIENCE:
            raise ConfigError(
                f"no conversation of the school's corpus fits {longest} tokens; raise base_model.max_tokens, or take a "
                f"model with a longer context"
            )


def held_out_samples(
    corpus: Corpus, tokenizer: PreTrainedTokenizerBase, num: int, longest: int, kind: Kind = "held out"
) -> list[Sample]:
    """Samples of ``num`` conversations that are not trained on, of at most ``longest`` tokens."""
    written: list[Transcript] = []
    for chunk in corpus.chunks(kind=kind):
        written += chunk
        if len(written) >= num:
            break
    return [s for samples in encode(written[:num], tokenizer) for s in samples if len(s.tokens) <= longest]


def ahead(batches: Iterator[SchoolBatch], num: int = 4) -> Generator[SchoolBatch]:
    """The batches, so many of them made in a thread while the model computes; close it to end the thread."""
    thread = ThreadPoolExecutor(1, thread_name_prefix="school-batches")
    try:
        waiting = deque(thread.submit(next, batches) for _ in range(num))
        while True:
            yield waiting.popleft().result()
            waiting.append(thread.submit(next, batches))
    finally:
        thread.shutdown(wait=False, cancel_futures=True)


def summed_loss(model: PreTrainedModel, samples: Sequence[Sample]) -> torch.Tensor:
    """Cross-entropy in nats, summed over the answers' tokens; the vocabulary is only scored there."""
    from torch.nn.functional import cross_entropy

    states_NH, tokens_N = answer_states(model, [s.tokens for s in samples], [s.num_answer for s in samples])
    logits_NV = model.get_output_embeddings()(states_NH).float()
    return cross_entropy(logits_NV, tokens_N, reduction="sum")
