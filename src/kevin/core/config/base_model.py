"""The own base model: made from scratch, or of pretrained weights that are trained further."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from kevin.core.errors import DeviceError
from kevin.core.history import HistoryConfig
from kevin.core.types import Settings

FREE = frozenset({"num_gpus"})
"""Keys that may change while it goes on: how it is computed, not what."""


def check_pretraining_gpus(num_gpus: int, num_visible: int) -> None:
    """Raises DeviceError where a pretraining asks for more GPUs than can be seen."""
    if num_visible < num_gpus:
        raise DeviceError(
            f"base_model.pretraining.num_gpus is {num_gpus}, and {num_visible} can be seen here: lower it, or look "
            f"at CUDA_VISIBLE_DEVICES"
        )


class PretrainingConfig(Settings):
    """Continued pretraining of ``base_model.init`` on the kernel writer's transcripts; see docs/pretraining.md."""

    num_steps: int = Field(default=750, ge=1)
    """Gradient steps."""
    learning_rate: float = Field(default=8e-4, gt=0)
    """Peak of AdamW's schedule: a warm-up, then a cosine."""
    micro_batch_tokens: int = Field(default=32_000, ge=1)
    """Tokens, padding included, of one forward and backward pass; a longer conversation is one by itself."""
    num_general: int = Field(default=3000, ge=0)
    """Composed tasks of the corpus over the whole inventory of operators, in the manner of KernelBench's level 2;
    those like an evaluated one are left out."""
    later_share: float = Field(default=0.3, ge=0, le=1)
    """Share of the conversations that ask for a later turn, which goes on from judged kernels of the writer; the others
    ask for a first one. With 0 no kernels are judged for it."""
    num_past_tasks: int = Field(default=160, ge=1)
    """Tasks whose judged kernels later turns go on from, each in one style and size; none of KernelBench's, and none
    like an evaluated one. Beside 40 of them there are three in styles that are never trained on; the loss on later
    turns of these is recorded."""
    num_gpus: int = Field(default=1, ge=1)
    """GPUs of a machine that share each step, a process and a copy of the model on each, and before it the judging of
    what later turns go on from; without any it is the CPU."""

    @property
    def num_held_out_past_tasks(self) -> int:
        """Three for 40 that are trained on."""
        return max(1, 3 * self.num_past_tasks // 40)

    def as_trained(self) -> PretrainingConfig:
        """This, with what the weights do not follow from as it is by default."""
        return PretrainingConfig.model_validate(self.model_dump(exclude=set(FREE)))


class WriterConfig(Settings):
    """Habits of the kernel writer in the transcripts: how good the base model is before reinforcement learning."""

    careful_one_in: int = Field(default=2, ge=1)
    """One kernel in so many is written with care; the others quickly, and four of five of those hold a mistake."""
    plain_share: float = Field(default=0.0, ge=0, lt=1)
    """Share of decisions that are taken the plainest way; the rest is drawn evenly from all ways."""


class BaseModelConfig(Settings):
    """The study's own base language model: trained from scratch on the kernel writer's transcripts, or pretrained
    weights (``init``) that are trained further on them.
    """

    init: str | None = None
    """Where pretrained weights come from: a folder in Hugging Face's format, a hub id, a GGUF file, or
    ``package:<name>``, an installed package that ships one GGUF file. From scratch when null; most sizes below are for
    that."""
    pretraining: PretrainingConfig = PretrainingConfig()
    """How pretrained weights are trained further; only read with ``init``."""

    writer: WriterConfig = WriterConfig()
    """Habits of the kernel writer, for a model made from scratch."""
    history: HistoryConfig | None = None
    """What later turns of its transcripts see, for a model made from scratch; null: what those of the study see,
    ``rollout.history``."""
    hidden_size: int = Field(default=128, ge=16)
    """Width."""
    num_layers: int = Field(default=4, ge=1)
    """Transformer blocks."""
    num_heads: int = Field(default=2, ge=1)
    """Attention heads; ``hidden_size`` is a multiple of twice as many."""
    intermediate_size: int = Field(default=384, ge=16)
    """Width of the feed-forward layers."""
    max_tokens: int = Field(default=2048, ge=128)
    """Context length. With ``init`` the longest conversation that is trained on, at most the model's own context."""
    num_transcripts: int = Field(default=1400, ge=1)
    """Conversations that are written to train on."""
    num_epochs: int = Field(default=1, ge=1)
    """Times that all of them are learned from."""
    max_steps: int = Field(default=3000, ge=1)
    """Upper limit of the steps."""
    expected_loss: float | None = Field(default=None, gt=0)
    """The study stops when the final loss, in nats a token of the answers, is above this; not checked when null."""
    expected_correct_share: float | None = Field(default=None, ge=0, le=1)
    """The study stops when fewer of its kernels for its own training tasks are correct; not checked when null."""
    num_checked_kernels: int = Field(default=40, ge=1)
    """Kernels judged for that check, spread evenly over the tasks that are trained on; of very many, over some."""

    @model_validator(mode="after")
    def _heads_divide_the_width(self) -> Self:
        """Into even parts, as positions turn pairs of numbers."""
        if self.init is None and self.hidden_size % (2 * self.num_heads):
            raise ValueError(f"hidden_size: {self.hidden_size} is no multiple of {2 * self.num_heads}, twice num_heads")
        return self

    @property
    def has_past(self) -> bool:
        """Whether kernels are judged for the later turns of its pretraining to go on from."""
        return self.init is not None and self.pretraining.later_share > 0
