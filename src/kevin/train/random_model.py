"""A model in the shapes of another, with random weights: a training is rehearsed before there are weights to train."""

from __future__ import annotations

from pathlib import Path

from kevin.core import files
from kevin.core.errors import ConfigError, first_line
from kevin.train.architecture import read_architecture

_MARK = "random_weights"


def has_random_weights(model: str) -> bool:
    """Whether a folder was written by `write_random_model`, so that a training of it is a rehearsal."""
    return Path(model, _MARK).exists()


def write_random_model(like: Path, tokenizer: Path, out: Path, seed: int) -> int:
    """Write a Hugging Face folder in bfloat16; made on the GPU where there is one.

    Args:
        like: a config.json, or a folder with one: of a causal language model of any family.
        tokenizer: a folder whose tokenizer has a chat template, an end and a padding token, as a base model's has, and
            no more tokens than ``like`` has rows for.

    Returns:
        The number of parameters.

    Raises:
        ConfigError: ``like`` is no causal language model, or the tokenizer cannot serve it.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    parameters = int(read_architecture(like).num_parameters)
    config = AutoConfig.from_pretrained(like)
    try:
        words = AutoTokenizer.from_pretrained(tokenizer)
    except (OSError, ValueError, ImportError, KeyError) as e:
        raise ConfigError(f"no tokenizer in {tokenizer}: {first_line(e)}; give a model's folder") from e
    ends = {"eos_token_id": words.eos_token_id, "pad_token_id": words.pad_token_id}
    if words.chat_template is None or None in ends.values():
        raise ConfigError(
            f"the tokenizer of {tokenizer} lacks a chat template, an end or a padding token: give another"
        )
    text = config.get_text_config()
    if len(words) > text.vocab_size:
        raise ConfigError(
            f"the tokenizer of {tokenizer} has {len(words)} tokens, {like} rows for {text.vocab_size}: give another"
        )
    for part in (config, text):
        part.update({**ends, "bos_token_id": words.bos_token_id})
    torch.manual_seed(seed)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.generation_config = GenerationConfig(**ends, bos_token_id=words.bos_token_id, do_sample=True)
    with files.whole_folder(out) as partial:
        model.save_pretrained(partial)
        words.save_pretrained(partial)
        (partial / _MARK).touch()
    return parameters
