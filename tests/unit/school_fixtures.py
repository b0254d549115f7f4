"""Tiny random models of several families, with a chat template: what `base_model.init` may name."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)
from writer_fixtures import small_catalog

from kevin.train.tokenizer import CHAT_TEMPLATE, END, PAD, train_tokenizer
from kevin.writer.transcripts import transcripts

FAMILIES = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen2": (Qwen2Config, Qwen2ForCausalLM)}


@cache
def _tokenizer_json() -> str:
    written = list(transcripts(small_catalog(), "cpp", 12, 1, 0))
    texts = [m.content for t in written for m in t.conversation]
    texts += [a for t in written for e in t.exchanges for a in e.answers]
    return str(train_tokenizer(texts, 1500).backend_tokenizer.to_str())


def save_pretrained_model(
    folder: Path,
    family: str,
    *,
    template: str | None = CHAT_TEMPLATE,
    eos: str | None = END,
    pad: str | None = PAD,
    context: int = 2048,
) -> Path:
    """A folder in Hugging Face's format whose weights are random."""
    from tokenizers import Tokenizer

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(_tokenizer_json()), eos_token=eos, pad_token=pad
    )
    tokenizer.chat_template = template
    config, kind = FAMILIES[family]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = kind(
            config(
                vocab_size=len(tokenizer),
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                intermediate_size=48,
                max_position_embeddings=context,
                eos_token_id=tokenizer.eos_token_id,
                pad_token_id=tokenizer.pad_token_id,
                bos_token_id=None,
                tie_word_embeddings=True,
            )
        )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
