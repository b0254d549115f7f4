"""Models of a few thousand random numbers."""

from __future__ import annotations

from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase, Qwen2ForCausalLM

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 48,
}


def random_model(
    tokenizer: PreTrainedTokenizerBase | None = None,
    kind: type[PreTrainedModel] = Qwen2ForCausalLM,
    seed: int = 0,
    **settings: Any,
) -> PreTrainedModel:
    """Of ``SIZES`` but for ``settings``; it ends and pads as its tokenizer does, and begins with nothing."""
    if tokenizer is not None:
        ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id, "bos_token_id": None}
        settings = {"vocab_size": len(tokenizer), **ends, **settings}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return kind(kind.config_class(**SIZES | settings))
