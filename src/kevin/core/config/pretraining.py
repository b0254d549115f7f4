"""How pretrained weights are trained further before reinforcement learning: first turns, and later ones with a past."""

from __future__ import annotations

from pydantic import Field

from kevin.core.errors import DeviceError
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
