"""The study's own base language model: a small Qwen3, trained from scratch on the kernel writer's transcripts.

It plays the part of a pretrained model: it knows the language of kernels and of this dialogue, and was never shown
which kernels are good. See docs/pretraining.md.
"""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from kevin.core.config import BaseModelConfig, Study
from kevin.core.progress import Progress
from kevin.core.provenance import jobs_side_by_side
from kevin.core.types import Transcript
from kevin.train.copying import ROPE_THETA, can_hold_copying_heads, set_copying_heads
from kevin.train.muon import make_optimizers
from kevin.train.packing import (
    ATTENTION,
    Drills,
    Encoder,
    Gradients,
    Part,
    Row,
    bucketed,
    register_attention,
    step_parts,
)
from kevin.train.tokenizer import VOCABULARY, train_tokenizer
from kevin.train.training import Training, save_training, summarise_training

log = logging.getLogger(__name__)

_TOKENIZER_TRANSCRIPTS = 800
BATCH_SIZE = 2
"""Transcripts a step, each a conversation with several answers."""
_NICE = 19
"""On a CPU: it takes every core that jobs beside it leave, whose kernels are timed meanwhile."""


def train_base_model(study: Study, corpus: Iterable[Transcript], out_dir: Path) -> None:
    """Read the corpus, learn the tokenizer, train, and save a Hugging Face folder with its ``training.jsonl`` and
    ``summary.json``.

    The number of steps follows from the configuration and the corpus alone. A killed run leaves no folder and starts
    again.
    """
    config = study.base_model
    start = time.monotonic()
    torch.manual_seed(study.seed)
    if jobs_side_by_side() > 1 and not torch.cuda.is_available():
        os.nice(_NICE)
    torch.set_num_threads(1)  # the operators are too small to share: two threads mostly wait for each other
    written = list(_counted(corpus, config.num_transcripts))
    tokenizer = train_tokenizer(_texts(written[:_TOKENIZER_TRANSCRIPTS]), VOCABULARY)
    encoder = Encoder(tokenizer)
    encoder.know(_texts(written))
    rows = [r for r in map(encoder.row, written) if r.num_positions <= config.max_tokens]
    num_tokens = sum(r.num_tokens for r in rows)
    log.info("%d transcripts, %d tokens, vocabulary of %d", len(rows), num_tokens, len(tokenizer))
    rng = random.Random(f"kevin batches, seed {study.seed}")
    together = bucketed(rows, BATCH_SIZE)
    epochs = [batch for _ in range(config.num_epochs) for batch in rng.sample(together, len(together))]
    batches = epochs[: config.max_steps]
    pad = int(tokenizer.pad_token_id)
    model = new_model(config, len(tokenizer), end=int(tokenizer.eos_token_id), pad=pad, seed=study.seed)
    drills = Drills([row for batch in batches for row in batch], set(tokenizer.all_special_ids))
    records = _train(model, batches, drills, pad, study, start)
    save_training(out_dir, model, tokenizer, records, summarise_training(records))
    log.info("base model of %d parameters in %.0f s", model.num_parameters(), time.monotonic() - start)


def _counted(corpus: Iterable[Transcript], num: int) -> Iterator[Transcript]:
    with Progress(num, "write transcripts", "transcripts") as bar:
        for transcript in corpus:
            yield transcript
            bar.update()


def _texts(written: Sequence[Transcript]) -> list[str]:
    prompts = [m.content for t in written for m in t.conversation]
    return prompts + [a for t in written for e in t.exchanges for a in e.answers]


def new_model(config: BaseModelConfig, vocab_size: int, *, end: int, pad: int, seed: int = 0) -> Qwen3ForCausalLM:
    """A model of the configured size with random weights, on the GPU where there is one.

    Args:
        end, pad: tokens that end an answer, and that fill up.
        seed: of the heads that copy; all other weights are drawn from torch's own generator.
    """
    register_attention()
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=vocab_size,
            hidden_size=config.hidden_size,
            num_hidden_layers=config.num_layers,
            num_attention_heads=config.num_heads,
            num_key_value_heads=config.num_heads,
            head_dim=config.hidden_size // config.num_heads,
            intermediate_size=config.intermediate_size,
            max_position_embeddings=config.max_tokens,
            rope_parameters={"rope_type": "default", "rope_theta": ROPE_THETA},
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=end,
            pad_token_id=pad,
            attn_implementation=ATTENTION,  # type: ignore[call-arg]
        )
    )
    if can_hold_copying_heads(model):
        set_copying_heads(model, seed)
    return model.to("cuda" if torch.cuda.is_available() else "cpu")  # type: ignore[arg-type, no-any-return]


def _train(
    model: Qwen3ForCausalLM, batches: Sequence[list[Row]], drills: Drills, pad: int, study: Study, start: float
) -> list[dict[str, float]]:
    """One pass over the batches; a record of every step. ``start``: when all of it began, monotonic seconds."""
    rng = random.Random(f"kevin drills, seed {study.seed}")
    model.train()
    with Progress(len(batches), "train base model", "steps") as bar, Gradients(model) as gradients:
        training = Training(model, make_optimizers(model), len(batches), started=start, map_=gradients.map)
        for rows in batches:
            parts = step_parts(rows, drills, rng, pad)

            def set_gradients(parts: list[Part] = parts) -> dict[str, float]:
                *losses, copying_loss = gradients.set(parts)
                return {
                    "loss": sum(part.weight * loss for part, loss in zip(parts[:-1], losses, strict=True)),
                    "copying_loss": copying_loss,
                    "num_tokens": sum(part.batch.tokens.numel() for part in parts),
                }

            record = training.step(set_gradients)
            bar.note(f"loss {record['loss']:.3f}")
            bar.update()
    model.eval()
    return training.records
