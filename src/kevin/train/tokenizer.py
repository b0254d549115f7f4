"""The base model's tokenizer: byte-level pairs whose pieces may span a whole line, and the chat template."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

VOCABULARY = 4096
"""Tokens, bytes and the template's own included."""
PAD, END = "<|pad|>", "<|end|>"
ROLES = {role: f"<|{role}|>" for role in ("system", "user", "assistant")}

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)

_LINE = r"[^\n]*\n|[^\n]+"
_NUMBER = r"(?<![A-Za-z0-9_.])(?:\d+\.\d+(?:e-?\d+)?|\d+e-?\d+|\d\d+)"
"""Decimal fractions and numbers of two digits or more stand by themselves: constants that a kernel copies."""
_PARAMETER = r"(?:, )?(?:const )?\w+\* \w+(?=[,)])"
"""So does every pointer in a list of parameters: the launcher's signature is copied from the prompt."""
_LABEL = r"^[A-Z][A-Za-z ]*: "
"""What a line says of what follows: "The last one: Correct, ..." goes on in the pieces of the feedback."""


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """Learn the pieces from texts. Text is only ever cut at line ends, labels, constants and parameters before that."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_LINE), behavior="isolated"),
            pre_tokenizers.Split(Regex(_LABEL), behavior="isolated"),
            pre_tokenizers.Split(Regex(_PARAMETER), behavior="isolated"),
            pre_tokenizers.Split(Regex(_NUMBER), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=[PAD, END, *ROLES.values()],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=list(ROLES.values()),
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer
