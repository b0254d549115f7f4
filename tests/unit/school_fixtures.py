"""Tiny random models of several families, with a chat template: for `base_model.init`; and a short pretraining."""

from __future__ import annotations

from contextlib import nullcontext
from functools import cache
from itertools import count
from pathlib import Path

from model_fixtures import random_model
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast, Qwen2ForCausalLM
from writer_fixtures import small_catalog

from kevin.core.config import Study
from kevin.train import school
from kevin.train.tokenizer import CHAT_TEMPLATE, END, PAD, train_tokenizer
from kevin.writer import corpus
from kevin.writer.evaluated import Evaluated
from kevin.writer.transcripts import transcripts

FAMILIES = {"llama": LlamaForCausalLM, "qwen2": Qwen2ForCausalLM}


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
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    model = random_model(
        tokenizer, FAMILIES[family], max_position_embeddings=context, tie_word_embeddings=True, **heads
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def shorten(patch) -> None:
    """Small steps, and a loss measured on fewer conversations, more often. ``patch``: pytest's MonkeyPatch."""
    patch.setattr(school, "BATCH_TOKENS", 2000)
    patch.setattr(school, "NUM_HELD_OUT", 4)
    patch.setattr(school, "EVALUATE_EVERY", 2)


def make_study(folder, **settings) -> Study:
    training = {
        "num_steps": 4,
        "micro_batch_tokens": 2000,
        "num_general": 20,
        "later_share": 0.0,
    }
    return Study.model_validate(
        {
            "policies": {"base": {"model": "model"}},
            "tasks": {"num_eval_level1": 2, "num_eval_level2": 0},
            "base_model": {"init": str(folder), "pretraining": training | settings},
        }
    )


class WritesHere(nullcontext):
    """In place of the writing processes, whose start takes seconds."""

    def __init__(self, study, lessons=None, pasts=corpus.NO_PASTS):
        super().__init__(self)
        lessons = lessons or corpus.Lessons(small_catalog(), Evaluated())
        self._study, self._lessons, self._pasts = study, lessons, pasts
        self.identity, self.has_held_out_later = pasts.identity, bool(pasts.held_out)

    def chunks(self, first=0, kind="trained on"):
        number, skipped = divmod(first, corpus.CHUNK)
        for chunk in count(number):
            yield list(corpus.school_corpus(self._study, self._lessons, chunk, kind, self._pasts))[skipped:]
            skipped = 0
