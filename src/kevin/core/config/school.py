"""The schools of pretrained weights: first turns, and then later ones with a judged past."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from kevin.core.errors import DeviceError
from kevin.core.types import Settings

FREE = frozenset({"num_workers", "num_gpus", "compile_layers", "checkpoint_minutes"})
"""Keys of a school that may change while it goes on: how it is computed, not what."""
SaidDecisions = Literal["changed", "all"]


def check_school_gpus(num_gpus: int, num_visible: int) -> None:
    """Raises DeviceError where a school asks for more GPUs than can be seen."""
    if num_visible < num_gpus:
        raise DeviceError(
            f"base_model.school_training.num_gpus is {num_gpus}, and {num_visible} can be seen here: lower it, or look "
            f"at CUDA_VISIBLE_DEVICES"
        )


class SchoolConfig(Settings):
    """Continued pretraining of ``base_model.init`` on the kernel writer's transcripts; see docs/pretraining.md."""

    num_steps: int = Field(default=400, ge=1)
    """Gradient steps."""
    batch_tokens: int = Field(default=48_000, ge=1)
    """Tokens of a step, prompts included: whole conversations until there are as many."""
    micro_batch_tokens: int = Field(default=16_000, ge=1)
    """Tokens, padding included, of one forward and backward pass; a longer conversation is one by itself."""
    learning_rate: float = Field(default=8e-4, gt=0)
    """Peak of AdamW's schedule: a warm-up, then a cosine."""
    mistakes: float = Field(default=0.0, ge=0, le=1)
    """Probability of a mistake in a kernel of the corpus."""
    num_composed: int = Field(default=250, ge=0)
    """Composed tasks of the corpus, beside the catalog's single operators; those like an evaluated one are left out."""
    num_general: int = Field(default=500, ge=0)
    """Further ones over the whole inventory of operators, in the manner of KernelBench's level 2."""
    num_shapes: int = Field(default=4, ge=0)
    """Tasks of each single operator of the whole inventory, in other shapes, ranks and dimensions."""
    num_held_out: int = Field(default=48, ge=1)
    """Conversations in styles that are never trained on; the loss on their answers is recorded."""
    evaluate_every: int = Field(default=50, ge=1)
    """Steps between two such records; the last step always has one."""
    num_workers: int | None = Field(default=None, ge=1)
    """Processes that write the corpus beside training, which does not depend on it; all cores but one when null."""
    num_gpus: int = Field(default=1, ge=1)
    """GPUs of a machine that share each step, a process and a copy of the model on each, and before it the judging of
    what a second school goes on from; without any it is the CPU."""
    compile_layers: bool = True
    """On a GPU: compile the model's layers, which wants Triton and a C compiler. Half a minute at the start; most
    of a small model's step is launching one by one what is then one kernel."""
    checkpoint_minutes: float = Field(default=5.0, gt=0)
    """Minutes between checkpoints; a killed training goes on from the last one."""

    def as_trained(self) -> SchoolConfig:
        """This, with what the weights do not follow from as it is by default."""
        return SchoolConfig.model_validate(self.model_dump(exclude=set(FREE)))


class WaysConfig(Settings):
    """How often a later turn goes on in which way: shares of those that its past allows, relative to each other."""

    mend: float = Field(default=3.0, ge=0)
    """After a wrong kernel: the same decisions, right."""
    change: float = Field(default=3.0, ge=0)
    """The fastest kernel so far with one decision drawn anew."""
    go_back: float = Field(default=1.0, ge=0)
    """After a slower or wrong kernel: the fastest one so far as it was."""
    follow_profile: float = Field(default=1.0, ge=0)
    """The fastest kernel so far with one decision drawn anew that its profile points to, where the feedback has one."""
    start_anew: float = Field(default=1.0, ge=0)
    """All decisions drawn anew."""
    change_at_random: float = Field(default=1.0, ge=0)
    """The last kernel with one to three decisions drawn anew, whatever became of it."""
    repeat: float = Field(default=1.0, ge=0)
    """The last kernel as it was, where it was correct."""


class PastConfig(Settings):
    """The judged answers that later turns of the school go on from."""

    num_tasks: int = Field(default=200, ge=1)
    """Tasks of the school, each in one style and size; none of KernelBench's, and none like an evaluated one."""
    num_held_out_tasks: int = Field(default=20, ge=0)
    """Further ones in styles that are never trained on; the loss on later turns of these is recorded."""
    largest_mb: int = Field(default=128, ge=1)
    """Size limit of a task's largest tensor, in float32."""
    own_answers: int = Field(default=3, ge=0)
    """First answers to each task by the model that comes from the first school. With 0 there is no first school: the
    second one starts from ``base_model.init``, and goes on from the writer's kernels alone."""
    right_kernels: int = Field(default=2, ge=0)
    """Kernels of the writer for each task, of several plans."""
    wrong_kernels: int = Field(default=1, ge=0)
    """Kernels of the writer for each task with a mistake."""

    @property
    def num_kernels(self) -> int:
        """At most so many are judged."""
        each = self.own_answers + self.right_kernels + self.wrong_kernels
        return each * (self.num_tasks + self.num_held_out_tasks)

    @model_validator(mode="after")
    def _has_answers(self) -> Self:
        if not self.num_kernels:
            raise ValueError("no answers to go on from: own_answers, right_kernels or wrong_kernels must be above 0")
        return self


class SecondSchoolConfig(Settings):
    """Continued training of what the first school made, with later turns; all else as in ``school_training``."""

    num_steps: int = Field(default=300, ge=1)
    """Gradient steps."""
    learning_rate: float = Field(default=5e-4, gt=0)
    """Peak of AdamW's schedule."""
    later_share: float = Field(default=0.5, ge=0, le=1)
    """Share of the conversations that ask for a later turn; the others ask for a first one."""
    max_past: int = Field(default=4, ge=1)
    """Later turns have one to so many turns before them, few more often, as far as ``base_model.max_tokens`` allows."""
    ways: WaysConfig = WaysConfig()
    """How a later turn goes on."""
    decisions: SaidDecisions = "changed"
    """Which decisions a later turn says before its kernel: those that it makes, so that all else is copied from the
    kernel that it goes on from, or all, which have to be read back from that kernel first."""
    past: PastConfig = PastConfig()
    """What it goes on from."""

    @model_validator(mode="after")
    def _has_a_way(self) -> Self:
        if not any(self.ways.model_dump().values()):
            raise ValueError("ways: at least one share must be above 0")
        return self
