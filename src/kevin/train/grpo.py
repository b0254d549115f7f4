"""Group-relative policy optimisation with TRL's trainer: the only module that imports TRL.

TRL brings the loss, the optimiser, checkpoints and distribution. Rollouts, scores, returns and advantages are ours: a
generation batch is played by `kevin.train.step.StepPlayer`, every turn is one sample, and TRL is handed our advantages.

Shape suffixes: B samples, L padded prompt and answer, C padded answer.
"""

from __future__ import annotations

import logging
import random
import time
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import DistributedType, gather_object
from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PrinterCallback, TrainerCallback
from transformers.utils.logging import disable_progress_bar
from trl import GRPOConfig, GRPOTrainer
from trl.models.utils import unwrap_model_for_generation

from kevin.core.config import Study, TrainConfig
from kevin.core.errors import ConfigError, DeviceError, first_line
from kevin.core.lengths import longest_response
from kevin.core.types import Task
from kevin.policy.decode import TokenIds
from kevin.policy.interface import Sampling
from kevin.policy.transformers import Generate, OnAnswer, cpu_dtype
from kevin.train.checkpoint import checkpoint_written, keeping_cache_setting
from kevin.train.logprobs import answer_logprobs
from kevin.train.lora import inner_model, merged_parameters, with_adapter
from kevin.train.policy import RecordingPolicy, awake, engines_draft, generate_with_vllm
from kevin.train.rows import flat_groups, kept_groups_scale
from kevin.train.step import TEMPERATURE, StepPlayer, StepRollouts, merged
from kevin.train.unpadded import compiling, lay_out_in_rows, takes_rows

CLIP_LOW = 0.2
"""Probability ratios below 1 - this have no gradient when the advantage is negative."""
WARMUP_SHARE = 0.03
"""Of the gradient steps, in which the learning rate rises from 0."""

logger = logging.getLogger(__name__)
logging.getLogger("trl.trainer.grpo_trainer").addFilter(lambda r: "returned None" not in r.getMessage())  # as meant


def _narrow(train: TrainConfig, *, on_cpu: bool) -> bool:
    """Whether products are computed in bfloat16; on a CPU only where it is fast with that."""
    if on_cpu:
        return train.dtype == "bfloat16" and cpu_dtype(torch.bfloat16) == torch.bfloat16
    return train.dtype == "bfloat16" or train.autocast


def grpo_config(study: Study, folder: Path, num_processes: int, *, on_cpu: bool) -> GRPOConfig:
    """TRL's settings for a run (``study`` as `Study.for_run` gives it).

    Raises:
        ConfigError: a batch that the processes do not divide.
    """
    train = study.train
    if train.tasks_per_step % num_processes:
        raise ConfigError(
            f"train.tasks_per_step = {train.tasks_per_step} must be a multiple of the {num_processes} processes: a "
            f"task's whole group is rolled out by one of them"
        )
    if train.lora is not None and num_processes > 1:
        raise ConfigError(
            f"train.lora trains on one GPU, and here are {num_processes} processes: start it without "
            f"accelerate launch; other GPUs can judge (pool.gpus)"
        )
    micro_batches, rest = divmod(train.batch_size, num_processes * train.micro_batch_size)
    if rest or micro_batches % train.updates_per_step:
        raise ConfigError(
            f"a batch of {train.batch_size} samples cannot be divided among {num_processes} processes and "
            f"{train.updates_per_step} gradient steps into whole micro-batches of {train.micro_batch_size}"
        )
    vllm = train.generation != "transformers"
    args = GRPOConfig(
        output_dir=str(folder / "checkpoints"),
        max_steps=train.num_steps * updates_of_a_step(train),
        per_device_train_batch_size=train.micro_batch_size,
        steps_per_generation=micro_batches,
        gradient_accumulation_steps=micro_batches // train.updates_per_step,
        num_iterations=train.num_iterations,
        num_generations=train.group_size,
        max_completion_length=longest_response(study),
        temperature=TEMPERATURE,
        top_p=study.rollout.top_p,
        scale_rewards="group" if train.advantage in ("group", "turn") else "none",
        loss_type=train.loss,
        epsilon=CLIP_LOW,
        epsilon_high=train.clip_high,
        top_entropy_quantile=train.high_entropy_share,
        beta=train.kl_beta or train.first_turn_kl,
        learning_rate=train.learning_rate,
        lr_scheduler_type="constant_with_warmup" if train.schedule == "constant" else "linear",
        warmup_steps=WARMUP_SHARE,
        weight_decay=0.0,
        adam_epsilon=train.adam_epsilon,
        max_grad_norm=train.max_grad_norm,
        seed=study.seed + train.seed,
        data_seed=study.seed + train.seed,
        shuffle_dataset=False,  # the order is ours: kevin.train.order
        bf16=_narrow(train, on_cpu=on_cpu),
        gradient_checkpointing=train.gradient_checkpointing,
        use_cpu=on_cpu,
        dataloader_pin_memory=not on_cpu,
        use_vllm=vllm,
        vllm_mode="colocate",
        vllm_gpu_memory_utilization=train.vllm_memory_share,
        vllm_tensor_parallel_size=train.vllm_tensor_parallel,
        vllm_max_model_length=study.rollout.max_prompt_tokens + longest_response(study) if vllm else None,
        vllm_enable_sleep_mode=vllm,
        vllm_importance_sampling_mode="token_truncate",
        vllm_importance_sampling_clip_max=2.0,
        save_strategy="steps",
        save_steps=train.save_every * updates_of_a_step(train),
        logging_steps=1,
        logging_nan_inf_filter=False,
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
        log_completions=False,
    )
    args._n_gpu = min(args.n_gpu, 1)  # other visible GPUs may judge, and several train only through accelerate
    return args


def updates_of_a_step(train: TrainConfig) -> int:
    """Gradient steps between two rollouts."""
    return train.updates_per_step * train.num_iterations


def computes_in_rows(train: TrainConfig, args: GRPOConfig) -> bool:
    """Whether samples stand in rows without padding, whose layers can be compiled: one process on a GPU, where vLLM
    generates. Generating with Transformers wants the model's own attention, and sharded layers are computed by TRL."""
    return args.device.type == "cuda" and args.world_size == 1 and train.generation != "transformers"


class KernelTrainer(GRPOTrainer):
    """GRPOTrainer with our rollouts and advantages, and micro-batches cut to their longest sample."""

    def __init__(
        self,
        study: Study,
        order: Sequence[Sequence[Task]],
        player: StepPlayer,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        args: GRPOConfig,
        callbacks: Sequence[TrainerCallback] = (),
    ) -> None:
        self._study, self._player = study, player
        self._played: StepRollouts | None = None
        self._preparing = False
        self._loss_inputs: dict[str, Any] | None = None
        self._model_s = self._prepare_s = 0.0
        self._cache_setting = model.config, model.config.use_cache
        warnings.filterwarnings("ignore", message="You are using 'rollout_func'")
        if computes_in_rows(study.train, args):
            lay_out_in_rows(model)
        with self._engine_settings():
            super().__init__(
                model=model if study.train.lora is None else with_adapter(model, study.train.lora, args.seed),
                reward_funcs=[_returns],
                args=args,
                train_dataset=Dataset.from_dict({"prompt": [t.id for step in order for t in step]}),
                processing_class=tokenizer,
                rollout_func=_roll_out,
                callbacks=list(callbacks),
            )
        self.remove_callback(PrinterCallback)
        disable_progress_bar()
        self._policy = RecordingPolicy("trained", model, tokenizer, self._generator())
        if study.train.lora is not None and self._is_colocated:
            self.vllm_generation._iter_named_params = lambda: merged_parameters(self.model)

    def _generator(self) -> Generate:
        if self._study.train.generation == "transformers":
            return self._generate_here
        return lambda *arguments: generate_with_vllm(self.vllm_generation, *arguments)

    def _generate_here(
        self, prompts: list[TokenIds], seeds: list[int], sampling: Sampling, on_answer: OnAnswer
    ) -> None:
        """Sample from the weights in training; sharded ones are gathered, which all processes do together."""
        # An adapter's own numbers are wider than the weights beside it.
        width = nullcontext() if self._study.train.lora is None else self.accelerator.autocast()
        with unwrap_model_for_generation(self.model_wrapped, self.accelerator) as unwrapped, width:
            self._policy.generate_with(inner_model(unwrapped), prompts, seeds, sampling, on_answer)

    def roll_out(self, prompts: Sequence[str]) -> dict[str, list[Any]]:
        """A generation batch of this process: ``prompts`` are task ids, each m * n times in a row."""
        size = self._study.train.group_size
        task_ids = [str(p) for p in prompts[::size]]
        if list(prompts) != [i for i in task_ids for _ in range(size)]:
            raise AssertionError("the trainer split a group: task ids must come in runs of m * n")
        step = self.state.global_step // updates_of_a_step(self._study.train) + 1
        if torch.cuda.is_available():
            torch.cuda.empty_cache()  # of the gradient steps: the judge's inputs may need it
        with self._awake():
            played = self._played = self._player.play(step, task_ids, self._policy)
        # A placeholder needs a token; its mask is 0 and its advantage 0.
        end = [min(self._policy._eos_ids)]
        filled = [(s.prompt_ids, s.completion_ids, s.logprobs) if s else (end, end, [0.0]) for s in played.samples]
        with_logprobs = any(s is not None and s.logprobs is not None for s in played.samples)
        return {
            "prompt_ids": [p for p, _, _ in filled],
            "completion_ids": [c for _, c, _ in filled],
            "logprobs": [lp for _, _, lp in filled] if with_logprobs else None,  # type: ignore[dict-item]
            "env_mask": [[int(s is not None)] * len(c) for s, (_, c, _) in zip(played.samples, filled, strict=True)],
            "return_": [r.return_ for r in played.rows],
        }

    @property
    def _is_colocated(self) -> bool:
        return self._study.train.generation == "vllm_colocate"

    def _engine_settings(self) -> AbstractContextManager[None]:
        policy = self._study.policies[self._study.train.init]
        return engines_draft(policy.draft_tokens) if self._is_colocated else nullcontext()

    def _awake(self) -> AbstractContextManager[None]:
        """A colocated vLLM wakes up once and sleeps once in a step, not in every turn."""
        return awake(self) if self._is_colocated else nullcontext()

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        batch: dict[str, Any] = super()._generate_and_score_completions(inputs)
        assert self._played is not None
        ours = torch.tensor([r.advantage for r in self._played.rows], dtype=torch.float32)
        if self._study.train.flat_groups == "drop":
            ours *= kept_groups_scale(gather_object([flat_groups(self._played.rows)]))
        batch["advantages"] = ours.to(batch["advantages"].device)
        is_first = [r.turn == 1 and r.task_id not in self._played.starts for r in self._played.rows]
        batch["is_first_turn"] = torch.tensor(is_first, device=batch["advantages"].device)
        return batch

    def _compute_loss(self, model: torch.nn.Module, inputs: dict[str, Any]) -> torch.Tensor:
        self._loss_inputs = inputs
        teaches = self._teaches(inputs)
        with torch.set_grad_enabled(teaches):
            loss: torch.Tensor = super()._compute_loss(model, inputs)
        self._loss_inputs = None
        return loss if teaches else loss + 0.0 * sum(p.sum() for p in model.parameters() if p.requires_grad)

    def _teaches(self, inputs: dict[str, Any]) -> bool:
        """Whether a micro-batch has a gradient; one of flat groups, whose advantages are all 0, need not go backward.

        Processes that share a step go backward together, and a KL divergence has a gradient of its own.
        """
        shared = self.accelerator.distributed_type is not DistributedType.NO
        return shared or self.beta != 0.0 or bool(inputs["advantages"].any())

    def _anchor_first_turns_only(self, logps_BC: torch.Tensor) -> None:
        """Where the reference is the policy itself, the KL divergence and its gradient are exactly 0."""
        if self._loss_inputs is None or not self._study.train.first_turn_kl:
            return
        is_first_B1 = self._loss_inputs["is_first_turn"].unsqueeze(1)
        reference_BC = self._loss_inputs["ref_per_token_logps"]
        self._loss_inputs["ref_per_token_logps"] = torch.where(is_first_B1, reference_BC, logps_BC.detach())

    def _get_per_token_logps_and_entropies(
        self,
        model: torch.nn.Module,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """The numbers of TRL's, with less work; columns that are padding in all of a micro-batch are left out.

        TRL pads prompts on the left and answers on the right to the longest of the whole generation batch. A model that
        is not wrapped for distribution also shares the work on common beginnings.
        """
        size = batch_size or input_ids.size(0)
        start = time.monotonic()
        parts, entropy_parts = [], []
        for ids, mask in zip(input_ids.split(size), attention_mask.split(size), strict=True):
            logps, entropies = self._trimmed_logps(model, ids, mask, logits_to_keep, compute_entropy, kwargs)
            padding = (0, logits_to_keep - logps.size(1))
            parts.append(torch.nn.functional.pad(logps, padding))
            if entropies is not None:
                entropy_parts.append(torch.nn.functional.pad(entropies, padding))
        if self._preparing:  # within a training step all of it is counted there
            self.count_model_time(start)
        logps_BC = torch.cat(parts)
        self._anchor_first_turns_only(logps_BC)
        return logps_BC, torch.cat(entropy_parts) if entropy_parts else None, None

    def _trimmed_logps(
        self,
        model: torch.nn.Module,
        ids_BL: torch.Tensor,
        mask_BL: torch.Tensor,
        answer_length: int,
        with_entropy: bool,
        kwargs: dict[str, Any],
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Of one micro-batch, as long as its longest answer."""
        used_L = mask_BL.any(dim=0).nonzero()
        prompt_length = ids_BL.size(1) - answer_length
        columns = slice(int(used_L[0]), int(used_L[-1]) + 1)
        ids, mask, length = ids_BL[:, columns], mask_BL[:, columns], columns.stop - prompt_length
        alone = self.accelerator.distributed_type is DistributedType.NO
        inner = inner_model(model)
        if alone and isinstance(inner, PreTrainedModel) and (takes_rows(inner) or not self.args.gradient_checkpointing):
            with self.accelerator.autocast():
                return answer_logprobs(
                    inner, ids, mask, length, temperature=self.temperature, with_entropy=with_entropy
                )
        logps, entropies, _ = super()._get_per_token_logps_and_entropies(
            model, ids, mask, length, compute_entropy=with_entropy, **kwargs
        )
        return logps, entropies

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        """As TRL's, but rows stay with those that begin alike: micro-batches are shuffled, not rows.

        The order follows from seed and step alone, so that a resumed run has it too.
        """
        start = time.monotonic()
        if self._step % (self.args.steps_per_generation * self.num_iterations) == 0 or self._buffered_inputs is None:
            self._preparing = True
            batch = self._generate_and_score_completions(generation_batch)
            count, size = self.args.steps_per_generation, self.args.per_device_train_batch_size
            order = random.Random(f"kevin micro-batches, {self.args.seed}, {self.state.global_step}").sample(
                range(count), k=count
            )
            self._buffered_inputs = [
                {k: v[i * size : (i + 1) * size] if v is not None and v.dim() else v for k, v in batch.items()}
                for i in order
            ]
            self._preparing = False
        self._prepare_s += time.monotonic() - start
        return self._buffered_inputs[self._step % self.args.steps_per_generation]

    def count_model_time(self, start: float) -> None:
        """Add what went by since ``start`` to the time of forward and backward passes and of the optimiser."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self._model_s += time.monotonic() - start

    def take_model_time(self) -> float:
        """Seconds since the last call; see `count_model_time`."""
        taken, self._model_s = self._model_s, 0.0
        return taken

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        start, self._prepare_s = time.monotonic(), 0.0
        try:
            with compiling():
                loss: torch.Tensor = super().training_step(*args, **kwargs)
            self.count_model_time(start + self._prepare_s)
            return loss
        except torch.OutOfMemoryError as e:
            train = self._study.train
            raise DeviceError(
                f"the device ran out of memory in a training step: {first_line(e)}. Lower "
                f"train.micro_batch_size ({train.micro_batch_size}), set train.gradient_checkpointing, or use more "
                f"devices, and start again: the run goes on from its last checkpoint"
            ) from e

    def take_rollouts(self) -> StepRollouts:
        """Of all processes."""
        assert self._played is not None
        return merged(gather_object([self._played]))

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        path = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
        with checkpoint_written(path), keeping_cache_setting(*self._cache_setting):
            super()._save_checkpoint(*args, **kwargs)

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """None is wanted."""


def _roll_out(prompts: list[str], trainer: KernelTrainer) -> dict[str, list[Any]]:
    return trainer.roll_out(prompts)


def _returns(return_: list[float | None], **_: Any) -> list[float | None]:
    """TRL's rewards are our returns; None where there is none."""
    return return_
