"""Reinforcement learning."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from kevin.core.types import Settings


class LoraConfig(Settings):
    """A low-rank adapter, which is trained in place of all weights; the policy that comes of it has it merged."""

    rank: int = Field(default=32, ge=1)
    """Of the two matrices beside each linear layer: 32 of a model of 7 billion parameters are 81 million numbers."""
    alpha: int = Field(default=32, ge=1)
    """What the adapter adds is multiplied by this over ``rank``."""


class TrainConfig(Settings):
    """Reinforcement learning on kernels judged for real. The recipe of arXiv 2507.11948 stands in full in
    ``config/paper.yaml``, the laptop's sizes in ``config/config.yaml``. The score is set under ``reward``.
    """

    method: Literal["grpo", "think_prune"] = "grpo"
    """GRPO; or Think-Prune-Train, fine-tuning on own correct answers, the comparison without reinforcement."""
    init: str = "base"
    """Key of ``policies`` that training starts from."""
    max_task_gb: float | None = Field(default=None, gt=0)
    """Tasks with more than this many gigabytes of inputs, parameters and outputs are not trained on: judging them takes
    many times as long as others. All tasks when null."""
    seed: int = Field(default=0, ge=0)
    """Seed of the order of tasks and of the sampling; the study's ``seed`` is added to it."""
    num_steps: int = Field(default=12, ge=1)
    """Steps; each is one batch of rollouts and its gradient steps."""
    tasks_per_step: int = Field(default=4, ge=1)
    """Tasks of a step, of all levels in the proportion of the split."""
    num_trajectories: int = Field(default=8, ge=1)
    """m, per task."""
    num_turns: int = Field(default=2, ge=1)
    """n, per trajectory. All m * n turns of a task are one group; 1 is the single-turn training of the paper."""
    raise_response_at_step: int | None = Field(default=None, ge=1)
    """From this step on answers may be ``raised_response_tokens`` long."""
    raised_response_tokens: int | None = Field(default=None, ge=1)
    """See ``raise_response_at_step``."""
    advantage: Literal["group", "turn", "leave_one_out", "turn_leave_one_out"] = "group"
    """(R - mean) / std over a task's m * n returns (the paper), or R - mean of the others'; ``turn``: the same among
    the m returns of each turn number (``turn_leave_one_out`` is TRLOO of Dr. Kernel)."""
    flat_groups: Literal["keep", "drop", "repair"] = "keep"
    """Tasks whose m * n returns are all equal have no gradient. ``drop``: the loss is the mean over the others.
    ``repair``: where no kernel was correct, the task's trajectories go on from one of these kernels and what was said
    of it when it comes up next, and begin anew the time after."""
    own_kernel_weight: float = Field(default=0.0, ge=0)
    """Added to the score of a correct kernel: this times the profiled share of device time in its own kernels (GPU)."""
    clip_high: float = Field(default=0.28, gt=0)
    """Probability ratios above 1 + this have no gradient when the advantage is positive (clip-higher)."""
    loss: Literal["dr_grpo", "grpo"] = "dr_grpo"
    """Normalisation of the loss: by the longest allowed answer, or by each answer's length."""
    high_entropy_share: float = Field(default=1.0, gt=0, le=1)
    """Share of a micro-batch's tokens that have a gradient: those at which the policy is least sure (arXiv 2506.01939).
    A small one leaves alone what is copied, and what the policy knows by heart."""
    kl_beta: float = Field(default=0.0, ge=0)
    """Weight of the KL divergence from the initial policy."""
    first_turn_kl: float = Field(default=0.0, ge=0)
    """The same on first turns alone, in its place: they stay where they were while later turns learn (SCoRe, stage I).
    """
    learning_rate: float = Field(default=1e-3, gt=0)
    """After the warm-up; what becomes of it then says ``schedule``."""
    schedule: Literal["constant", "linear"] = "constant"
    """The learning rate after the warm-up: it stays (the paper), or falls in a line to 0 after the last step."""
    adam_epsilon: float = Field(default=1e-8, gt=0)
    """AdamW epsilon. A large one spares weights with small gradients: the tokens that a batch says nothing about."""
    max_grad_norm: float = Field(default=0.05, gt=0)
    """Gradients are clipped to this norm."""
    updates_per_step: ClassVar[int] = 2
    """Gradient steps a batch, each on its share of it: the first on-policy, the others off-policy."""
    num_iterations: int = Field(default=1, ge=1)
    """Passes over a batch, of ``updates_per_step`` gradient steps each."""
    lora: LoraConfig | None = None
    """Train an adapter on every linear layer, in float32 and on one GPU, and leave the weights as they are; all weights
    are trained when null."""
    micro_batch_size: int = Field(default=8, ge=1)
    """Samples in one forward and backward pass of a device."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Data type of the weights in training."""
    autocast: bool = False
    """On a GPU: bfloat16 in the arithmetic of forward and backward passes over float32 weights, which keep the small
    steps that bfloat16 weights would round away."""
    gradient_checkpointing: bool = False
    """Trade time for memory."""
    generation: Literal["transformers", "vllm_colocate"] = "transformers"
    """What generates in training. A colocated vLLM sleeps during the gradient steps, and drafts as the policy that is
    trained does (``policies.<name>.draft_tokens``)."""
    vllm_memory_share: float = Field(default=0.3, gt=0, lt=1)
    """Share of a GPU's memory for the colocated vLLM while it is awake."""
    vllm_tensor_parallel: int = Field(default=1, ge=1)
    """GPUs that share one colocated vLLM."""
    save_every: int = Field(default=1, ge=1)
    """Steps between checkpoints; a killed run goes on from the last one."""
    stop_not_okay: float | None = Field(default=0.5, gt=0, le=1)
    """Training ends when the share of answers that leave the expected opening stays above this for three steps."""
    stop_repetition: float | None = Field(default=0.7, gt=0, le=1)
    """Training ends when the share of repeated 8-grams stays above this for three steps."""
    stop_nothing_correct: int | None = Field(default=6, ge=1)
    """Training, and the study with it, stops when no kernel of the first so many steps is correct: there is nothing to
    learn from. Never when null."""

    @property
    def group_size(self) -> int:
        """Turn-samples of one task in one step."""
        return self.num_trajectories * self.num_turns

    @property
    def batch_size(self) -> int:
        """Turn-samples of one step."""
        return self.tasks_per_step * self.group_size

    @model_validator(mode="after")
    def _fits(self) -> TrainConfig:
        if (self.raise_response_at_step is None) != (self.raised_response_tokens is None):
            raise ValueError("raise_response_at_step and raised_response_tokens come together")
        if self.group_size < 2:
            raise ValueError("a group needs at least two samples: raise num_trajectories or num_turns")
        if self.kl_beta and self.first_turn_kl:
            raise ValueError("kl_beta holds all turns and first_turn_kl the first ones: set one of them")
        if self.lora is not None and self.method != "grpo":
            raise ValueError(f"lora: of method grpo alone, and this one is {self.method}: leave it out")
        if self.advantage.startswith("turn") and self.num_trajectories < 2:
            raise ValueError(f"advantage {self.advantage} compares trajectories: raise num_trajectories")
        if self.method == "grpo" and self.batch_size % (self.updates_per_step * self.micro_batch_size):
            raise ValueError(
                f"a batch of {self.tasks_per_step} tasks x {self.num_trajectories} trajectories x {self.num_turns} "
                f"turns = {self.batch_size} samples cannot be divided into {self.updates_per_step} gradient steps "
                f"of whole micro-batches of {self.micro_batch_size}"
            )
        return self


class RunConfig(Settings):
    """One training run: what differs from ``train``, ``reward``, what later turns see, and the rules of the judge."""

    train: dict[str, Any] = Field(default={})
    """Keys of ``train``."""
    reward: dict[str, Any] = Field(default={})
    """Keys of ``reward``."""
    rollout: dict[str, Any] = Field(default={})
    """``history`` and ``profile_feedback`` of ``rollout``: what later turns see in this run, and at test those of the
    policy that it makes."""
    judge: dict[str, Any] = Field(default={})
    """``rules`` of ``judge``: those that this run's kernels are held to while it trains (docs/audit.md). Its policy is
    tested under the study's own."""
