"""A conversation as a model reads it: by the model's own chat template, the same in training and at test."""

from __future__ import annotations

from typing import Any

from kevin.core.config import PolicyConfig
from kevin.core.errors import UsageError
from kevin.core.fences import THINK_OPEN
from kevin.core.texts import strict_json
from kevin.core.types import Conversation


def check_template(tokenizer: Any, policy: str, model: object) -> None:
    """Raises UsageError for a tokenizer without a chat template."""
    if tokenizer.chat_template is None:
        raise UsageError(
            f"policy {policy}: the tokenizer of {model} has no chat template; use an instruction-tuned model, or put a "
            f"chat_template.jinja into its folder"
        )


def prepare_template(tokenizer: Any, name: str, config: PolicyConfig) -> None:
    """Set what the policy sets in its model's chat template, there itself: whoever saves the tokenizer keeps it.

    Raises:
        UsageError: there is no chat template.
    """
    check_template(tokenizer, name, config.model)
    for variable, value in config.template.items():
        tokenizer.chat_template = f"{{%- set {variable} = {strict_json(value)} %}}{tokenizer.chat_template}"


def prompt_text(tokenizer: Any, conversation: Conversation) -> tuple[str, str]:
    """The prompt, and the opening of the answer that the template has already written (``<think>`` or "").

    What the template adds by itself (a system prompt, say) stays. ``tokenizer``: of transformers, with a template.
    """
    messages = [m.model_dump() for m in conversation]
    text = str(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))
    return text, f"{THINK_OPEN}\n" if text.rstrip().endswith(THINK_OPEN) else ""


def prompt_tokens(tokenizer: Any, conversation: Conversation) -> tuple[list[int], str]:
    """As `prompt_text`, in token ids."""
    text, opening = prompt_text(tokenizer, conversation)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"]), opening
