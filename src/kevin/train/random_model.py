"""A model in the shapes of another, with random weights: a training is rehearsed before there are weights to train."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kevin.core import dialogue, files
from kevin.core.errors import ConfigError, first_line
from kevin.core.texts import strict_json
from kevin.core.types import Language, Task
from kevin.policy.load import MARK, RECORDING
from kevin.policy.replay import Recorded
from kevin.train.architecture import read_architecture

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

_WORDS = 4096
"""Pieces of a tokenizer that is made: as many letters each as those of a coder in such texts, about three."""
_PAD, _START, _END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_random_model(
    like: Path,
    tokenizer: Path | None,
    out: Path,
    seed: int,
    *,
    tasks: Sequence[Task] = (),
    language: Language = "cuda",
    answers: Mapping[str, Sequence[str]] | None = None,
) -> int:
    """Write a Hugging Face folder in bfloat16; made on the GPU where there is one.

    Args:
        like: a config.json, or a folder with one: of a causal language model of any family.
        tokenizer: a folder whose tokenizer has a chat template, an end and a padding token, as a base model's has, and
            no more tokens than ``like`` has rows for. One is made from the tasks where there is none.
        tasks: that the tokenizer is made from.
        answers: to some tasks, by their ids, recorded to be judged in place of the model's own.

    Returns:
        The number of parameters.

    Raises:
        ConfigError: ``like`` is no causal language model, or the tokenizer cannot serve it.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    parameters = int(read_architecture(like).num_parameters)
    config = AutoConfig.from_pretrained(like)
    text = config.get_text_config()
    recorded = [
        Recorded(task_id=task_id, trajectory=i, turn=1, completion=completion)
        for task_id, texts in (answers or {}).items()
        for i, completion in enumerate(texts)
    ]
    words: PreTrainedTokenizerBase
    if tokenizer is None:
        words = _make_tokenizer(_texts(tasks, language, recorded), text.vocab_size)
    else:
        try:
            words = AutoTokenizer.from_pretrained(tokenizer)
        except (OSError, ValueError, ImportError, KeyError) as e:
            raise ConfigError(f"no tokenizer in {tokenizer}: {first_line(e)}; give a model's folder") from e
    ends = {"eos_token_id": words.eos_token_id, "pad_token_id": words.pad_token_id}
    if words.chat_template is None or None in ends.values():
        raise ConfigError(
            f"the tokenizer of {tokenizer} lacks a chat template, an end or a padding token: give another"
        )
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
        (partial / MARK).touch()
        if recorded:
            (partial / RECORDING).write_text("".join(r.model_dump_json() + "\n" for r in recorded), "utf-8")
    return parameters


def _texts(tasks: Sequence[Task], language: Language, recorded: Sequence[Recorded]) -> Iterator[str]:
    """What a tokenizer is made from: prompts, and some answers to each task."""
    for task in tasks:
        for message in dialogue.conversation(task, (), dialect="c_abi", language=language):
            yield message.content
    yield from (r.completion for r in recorded if r.trajectory < 2)


def _make_tokenizer(texts: Iterator[str], num_rows: int) -> PreTrainedTokenizerFast:
    """Byte pairs within words, and further tokens that no text has, so that whatever is sampled is one."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=min(_WORDS, num_rows),
        special_tokens=[_PAD, _START, _END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(texts, trainer)
    described = json.loads(core.to_str())
    words = described["model"]["vocab"]
    words.update({f"unused{i}": i for i in range(len(words), num_rows)})
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(strict_json(described)),
        eos_token=_END,
        pad_token=_PAD,
        additional_special_tokens=[_START],
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = _TEMPLATE
    return tokenizer
