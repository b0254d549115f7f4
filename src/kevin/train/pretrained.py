"""Pretrained language models as the study wants them: a chat template, an end token of its own, an ordinary folder.

Any causal language model of transformers serves. GGUF files come without what a tokenizer's configuration says, so its
special tokens are mended from what the chat template writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kevin.core import files
from kevin.core.errors import ConfigError, first_line
from kevin.core.types import Message
from kevin.policy.chat import prompt_text
from kevin.policy.weights import Weights, find_weights

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

_PADS = ("<|pad|>", "<pad>", "[PAD]", "<|endoftext|>", "<|finetune_right_pad_id|>")
"""What padding is called, the most usual first; else any special token that the template does not write."""
_QUESTION, _ANSWER = "A question?", "An answer."


def load_pretrained(init: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Model in float32, on the CPU, and tokenizer of what ``base_model.init`` names; mended, ready to be saved.

    Raises:
        ConfigError: nothing is there, it cannot be loaded, or its tokenizer cannot serve, with the way out.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    weights = find_weights(init)
    file: dict[str, Any] = {"gguf_file": weights.gguf_file} if weights.gguf_file else {}
    with _refusing(weights):
        tokenizer = AutoTokenizer.from_pretrained(weights.name, **file)
        model = AutoModelForCausalLM.from_pretrained(
            weights.name, dtype=torch.float32, attn_implementation="sdpa", **file
        )
    if weights.gguf_file:  # dequantised, which transformers does not notice
        model.hf_quantizer = None  # type: ignore[assignment]
        if hasattr(model.config, "quantization_config"):
            del model.config.quantization_config
        model.is_quantized = False  # type: ignore[assignment]
    mend_tokenizer(tokenizer, model.config, str(weights))
    return model, tokenizer


def check_pretrained(init: str) -> None:
    """Whether `load_pretrained` will find a folder or a hub's model, and a tokenizer that can serve: reads no weights.

    Raises:
        ConfigError: as `load_pretrained`.
    """
    from transformers import AutoConfig, AutoTokenizer

    weights = find_weights(init)
    with _refusing(weights):
        tokenizer = AutoTokenizer.from_pretrained(weights.name)
        config = AutoConfig.from_pretrained(weights.name)
    mend_tokenizer(tokenizer, config, str(weights))


def unpack_weights(init: str, out_dir: Path) -> None:
    """Save what ``base_model.init`` names as a Hugging Face folder, which loads at once: transformers reads a GGUF file
    four times over, which takes half a minute of a core.

    Raises:
        ConfigError: as `load_pretrained` and `save_pretrained`.
    """
    model, tokenizer = load_pretrained(init)
    with files.whole_folder(out_dir) as partial:
        save_pretrained(partial, model, tokenizer)


@contextmanager
def _refusing(weights: Weights) -> Iterator[None]:
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, ValueError, ImportError, KeyError, RuntimeError, TypeError, SafetensorError) as e:
        raise ConfigError(_refusal(weights, e)) from e


def _refusal(weights: Weights, error: Exception) -> str:
    what = first_line(error)
    if weights.gguf_file and isinstance(error, ImportError):
        return f"base_model.init: a GGUF file needs the package gguf ({what}): pip install 'kevin-study[pretrained]'"
    if weights.gguf_file:
        return (
            f"base_model.init: {weights} cannot be read: {what}; give a GGUF file of an architecture that transformers "
            f"knows, or a folder in Hugging Face's format"
        )
    if weights.is_local:
        return f"base_model.init: {weights} cannot be loaded: {what}; give the folder of a causal language model"
    return (
        f"base_model.init: {weights.name!r} is no local folder, and the hub does not give it: {what}; check its name "
        f"and the network, or give the folder of a downloaded model"
    )


def mend_tokenizer(tokenizer: PreTrainedTokenizerBase, config: PretrainedConfig, name: str) -> None:
    """Set end and padding, in the tokenizer and in the model's configuration ``config``, so that they differ.

    The end is the special token that the chat template writes behind an answer.

    Raises:
        ConfigError: no chat template; no end token; no token that can serve as padding.
    """
    if tokenizer.chat_template is None:
        raise ConfigError(
            f"base_model.init: the tokenizer of {name} has no chat template; use an instruction-tuned model, or put a "
            f"chat_template.jinja into its folder"
        )
    end = _end_token(tokenizer, config)
    if end is None:
        raise ConfigError(
            f"base_model.init: neither the chat template of {name} nor its configuration names a token that ends an "
            f"answer; set eos_token in its tokenizer_config.json"
        )
    pad = _pad_token(tokenizer, end)
    if pad is None:
        raise ConfigError(
            f"base_model.init: the tokenizer of {name} pads with the token that ends an answer and has no other to "
            f"spare; give it a pad_token of its own in its tokenizer_config.json"
        )
    tokenizer.eos_token, tokenizer.pad_token = end, pad
    for key in ("eos_token_id", "pad_token_id", "bos_token_id", "unk_token_id", "gguf_file"):
        tokenizer.init_kwargs.pop(key, None)  # of a GGUF file: what its own fields say, whatever the tokens are
    tokenizer.clean_up_tokenization_spaces = False
    tokenizer.init_kwargs["clean_up_tokenization_spaces"] = False
    text = config.get_text_config()
    config.eos_token_id = text.eos_token_id = tokenizer.eos_token_id
    config.pad_token_id = text.pad_token_id = tokenizer.pad_token_id


def _end_token(tokenizer: PreTrainedTokenizerBase, config: PretrainedConfig) -> str | None:
    asked = [Message(role="user", content=_QUESTION).model_dump()]
    answered = [*asked, Message(role="assistant", content=_ANSWER).model_dump()]
    rest = str(tokenizer.apply_chat_template(answered, tokenize=False)).rpartition(_ANSWER)[2]
    special = _special_tokens(tokenizer)
    written = min((t for t in special if t in rest), key=rest.index, default=None)
    if written is not None:
        return written
    if tokenizer.eos_token is not None:
        return str(tokenizer.eos_token)
    configured = config.get_text_config().eos_token_id
    first = configured[0] if isinstance(configured, list) and configured else configured
    return str(tokenizer.convert_ids_to_tokens(first)) if isinstance(first, int) else None


def _pad_token(tokenizer: PreTrainedTokenizerBase, end: str) -> str | None:
    """One that no prompt holds, without a new row in the embedding."""
    if tokenizer.pad_token is not None and tokenizer.pad_token != end:
        return str(tokenizer.pad_token)
    conversation = tuple(Message(role=role, content=_QUESTION) for role in ("user", "assistant", "user"))
    prompt, _ = prompt_text(tokenizer, conversation)
    spare = [t for t in _special_tokens(tokenizer) if t != end and t not in prompt]
    usual = [t for t in (*_PADS, tokenizer.unk_token) if t in spare]
    return (usual or spare or [None])[0]


def _special_tokens(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    added = [t.content for t in tokenizer.added_tokens_decoder.values() if t.special]
    return list(dict.fromkeys([*added, *map(str, tokenizer.all_special_tokens)]))


def save_pretrained(folder: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Write an ordinary Hugging Face folder: safetensors, tokenizer, generation_config. Its special tokens are compared
    after loading them again.

    Raises:
        ConfigError: the tokenizer does not survive being saved.
    """
    from transformers import AutoTokenizer, GenerationConfig

    wanted = (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id)
    model.generation_config = GenerationConfig(
        bos_token_id=wanted[0], eos_token_id=wanted[1], pad_token_id=wanted[2], do_sample=True
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    again = AutoTokenizer.from_pretrained(folder)
    found = (again.bos_token_id, again.eos_token_id, again.pad_token_id)
    text = f"{tokenizer.eos_token}{_QUESTION}\n  {_ANSWER}"
    if found != wanted or again(text)["input_ids"] != tokenizer(text)["input_ids"]:
        raise ConfigError(
            f"base_model.init: the tokenizer does not survive being saved (start, end, padding {wanted}, then {found});"
            f" give a folder in Hugging Face's format"
        )
