"""The study's own base language model: a small Qwen3, trained from scratch on the kernel writer's transcripts.

It plays the part of a pretrained model: it knows the language of kernels and of this dialogue, and was never shown
which kernels are good. See docs/pretraining.md.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

from kevin.core.config import BaseModelConfig, Study
from kevin.core.files import whole_folder
from kevin.core.progress import progress
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
from kevin.train.training import Training, summarise_training, write_training

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

log = logging.getLogger(__name__)

_TOKENIZER_TRANSCRIPTS = 800
BATCH_SIZE = 2
"""Transcripts a step, each a conversation with several answers."""


def train_base_model(study: Study, corpus: Iterable[Transcript], out_dir: Path) -> None:
    """Read the corpus, learn the tokenizer, train, and save a Hugging Face folder with its ``training.jsonl`` and
    ``summary.json``.

    The number of steps follows from the configuration and the corpus alone. A killed run leaves no folder and starts
    again.
    """
    config = study.base_model
    start = time.monotonic()
    torch.manual_seed(study.seed)
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
    model = new_model(config, tokenizer, study.seed)
    drills = Drills([row for batch in batches for row in batch], set(tokenizer.all_special_ids))
    records = _train(model, batches, drills, int(tokenizer.pad_token_id), study, start)
    _save(out_dir, model, tokenizer, records, summarise_training(records))
    log.info("base model of %d parameters in %.0f s", model.num_parameters(), time.monotonic() - start)


def _counted(corpus: Iterable[Transcript], num: int) -> Iterator[Transcript]:
    with progress(num, "write transcripts", "transcripts") as bar:
        for transcript in corpus:
            yield transcript
            bar.update()


def _texts(written: Sequence[Transcript]) -> list[str]:
    prompts = [m.content for t in written for m in t.conversation]
    return prompts + [a for t in written for e in t.exchanges for a in e.answers]


def new_model(config: BaseModelConfig, tokenizer: PreTrainedTokenizerFast, seed: int = 0) -> Qwen3ForCausalLM:
    """A model of the configured size with random weights, on the GPU where there is one.

    Args:
        seed: of the heads that copy; all other weights are drawn from torch's own generator.
    """
    end, pad = int(tokenizer.eos_token_id), int(tokenizer.pad_token_id)
    return bare_model(config, len(tokenizer), end=end, pad=pad, seed=seed)


def bare_model(config: BaseModelConfig, vocab_size: int, *, end: int, pad: int, seed: int = 0) -> Qwen3ForCausalLM:
    """As `new_model`, for a vocabulary of this size with these special tokens."""
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
    training = Training(model, make_optimizers(model), len(batches), started=start)
    model.train()
    with progress(len(batches), "train base model", "steps") as bar, Gradients(model) as gradients:
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


def _save(
    out_dir: Path,
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    records: Sequence[dict[str, float]],
    summary: dict[str, Any],
) -> None:
    """The folder appears complete or not at all."""
    with whole_folder(out_dir) as partial:
        model.generation_config = GenerationConfig(
            eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, do_sample=True
        )
        model.save_pretrained(partial)
        tokenizer.save_pretrained(partial)
        write_training(partial, records, summary)
