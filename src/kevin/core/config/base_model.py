"""The own base model and its training."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from kevin.core.config.school import SaidDecisions, SchoolConfig, SecondSchoolConfig, WaysConfig
from kevin.core.history import HistoryConfig
from kevin.core.types import Settings


class WriterConfig(Settings):
    """Habits of the kernel writer in the transcripts: how good the base model is before reinforcement learning."""

    careful_one_in: int = Field(default=2, ge=1)
    """One kernel in so many is written with care; the others quickly."""
    careful_mistakes: float = Field(default=0.1, ge=0, le=1)
    """Probability of a mistake in a kernel that is written with care."""
    quick_mistakes: float = Field(default=0.8, ge=0, le=1)
    """Probability of a mistake in one that is written quickly."""
    more_mistakes: int = Field(default=0, ge=0)
    """Further mistakes in a kernel that was written quickly and holds one."""
    says_mistakes: bool = False
    """Whether the chain of thought holds the false belief behind every mistake, as a sentence that all tasks share."""
    plain_share: float = Field(default=0.0, ge=0, lt=1)
    """Share of decisions that are taken the plainest way; the rest is drawn evenly from all ways."""


class BaseModelConfig(Settings):
    """The study's own base language model: trained from scratch on the kernel writer's transcripts, or pretrained
    weights (``init``) that go to school on them.
    """

    init: str | None = None
    """Where pretrained weights come from: a folder in Hugging Face's format, a hub id, a GGUF file, or
    ``package:<name>``, an installed package that ships one GGUF file. From scratch when null; most sizes and rates
    below are for that, those of the school stand under ``school_training``."""
    school_training: SchoolConfig = SchoolConfig()
    """How pretrained weights are trained on; only read with ``init``."""
    second_school: SecondSchoolConfig | None = None
    """Teach later turns too: the school's model answers tasks, its answers are judged, and training goes on from them.
    Null: first turns only."""

    writer: WriterConfig = WriterConfig()
    """Habits of the kernel writer."""
    ways: WaysConfig = WaysConfig()
    """How a later turn of its transcripts goes on, for a model made from scratch."""
    history: HistoryConfig | None = None
    """What later turns of its transcripts see, for a model made from scratch; null: what those of the study see,
    ``rollout.history``."""
    decisions: SaidDecisions = "changed"
    """Which decisions such a turn says before its kernel: those that it makes, so that all else is copied from the
    kernel that it goes on from, or all, which have to be read back from that kernel first."""
    later_share: float = Field(default=0.5, ge=0, le=1)
    """Share of its transcripts that ask for a later turn; the others ask for a first one."""
    school: WriterConfig | None = None
    """Other habits for the first part of the corpus: what the model gets to know, beside what it then is used to do."""
    school_share: float = Field(default=0.75, gt=0, lt=1)
    """Share of the transcripts in that first part."""

    vocab_size: int = Field(default=4096, ge=300)
    """Tokens, bytes and the template's own included."""
    hidden_size: int = Field(default=128, ge=16)
    """Width."""
    num_layers: int = Field(default=4, ge=1)
    """Transformer blocks."""
    num_heads: int = Field(default=2, ge=1)
    """Attention heads; must divide ``hidden_size``."""
    intermediate_size: int = Field(default=384, ge=16)
    """Width of the feed-forward layers."""
    max_tokens: int = Field(default=2048, ge=128)
    """Context length. With ``init`` the longest conversation that is trained on, at most the model's own context."""
    num_transcripts: int = Field(default=1400, ge=1)
    """Conversations that are written to train on."""
    max_turns: int = Field(default=4, ge=1)
    """Transcripts hold one to this many turns."""
    num_epochs: int = Field(default=1, ge=1)
    """Times that all of them are learned from."""
    copying_heads: bool = True
    """Begin with attention heads that copy from the context, which a model of this size does not find by itself in the
    time it has; where it has two layers and two heads."""
    copying_weight: float = Field(default=0.25, ge=0)
    """Weight of the loss on copying tokens drawn at random, beside that on transcripts; 0: no such drills."""
    batch_size: int = Field(default=2, ge=1)
    """Transcripts a step, each a conversation with several answers."""
    learning_rate: float = Field(default=3e-3, gt=0)
    """Peak of AdamW's schedule: embeddings and vectors."""
    matrix_learning_rate: float = Field(default=0.02, gt=0)
    """Peak of Muon's schedule: the matrices of the blocks."""
    time_budget_s: float | None = Field(default=None, gt=0)
    """Shorten the schedule, once, where the first steps show that training would take longer. The model then depends on
    the machine's speed, and the report says so; without a budget a slow machine takes longer for the same model."""
    max_steps: int = Field(default=3000, ge=1)
    """Upper limit of the steps."""
    expected_loss: float | None = Field(default=None, gt=0)
    """The study stops when the final loss, in nats a token of the answers, is above this; not checked when null."""
    expected_correct_share: float | None = Field(default=None, ge=0, le=1)
    """The study stops when fewer of its kernels for its own training tasks are correct; not checked when null."""
    num_checked_kernels: int = Field(default=40, ge=1)
    """Kernels judged for that check, spread evenly over the tasks that are trained on; of very many, over some."""

    @property
    def has_two_schools(self) -> bool:
        """Whether a first school makes the answers that the second one goes on from."""
        return self.second_school is not None and self.second_school.past.own_answers > 0

    @model_validator(mode="after")
    def _second_follows_a_first(self) -> Self:
        if self.second_school is not None and self.init is None:
            raise ValueError("second_school teaches pretrained weights; name them in init, or leave it null")
        return self
