"""Which keys a training needs on a GPU of some size: found by trying, from the bill (`kevin.train.bill`)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, NamedTuple

from kevin.core.config import Study
from kevin.core.errors import DeviceError
from kevin.core.lengths import longest_response, with_lengths
from kevin.train.architecture import Architecture, architecture
from kevin.train.bill import GB, Assumptions, Bill, assumptions, make_bill

SIZES = {"24 GB": 25.4, "48 GB": 51.0, "80 GB": 85.0, "141 GB": 150.0}
"""What GPUs are sold as, and what they hold in 10^9 bytes."""
_USED_SHARE = 0.93
"""Of a GPU's memory, at most: the allocator cannot use every gap."""
_SHARE_STEP = 0.01
_WORKSPACE_BYTES = 1.5e9
"""Of an engine, beside its weights and caches."""


class Keys(NamedTuple):
    """Of ``train`` and ``rollout``, as they stand in a configuration."""

    vllm_memory_share: float
    gradient_checkpointing: bool
    micro_batch_size: int
    max_prompt_tokens: int
    max_response_tokens: int

    def said(self) -> str:
        return (
            f"train: {{vllm_memory_share: {self.vllm_memory_share:.2f}, gradient_checkpointing: "
            f"{str(self.gradient_checkpointing).lower()}, micro_batch_size: {self.micro_batch_size}}}, rollout: "
            f"{{max_prompt_tokens: {self.max_prompt_tokens}, max_response_tokens: {self.max_response_tokens}}}"
        )


def with_keys(study: Study, keys: Keys) -> Study:
    """``study``: with every length a number."""
    train = {name: getattr(keys, name) for name in keys._fields[:3]}
    lengths = {name: getattr(keys, name) for name in keys._fields[3:]}
    return study.model_copy(
        update={
            "train": study.train.model_copy(update=train),
            "rollout": study.rollout.model_copy(update=lengths),
        }
    )


def fitting_keys(study: Study, model: Architecture, given: Assumptions) -> tuple[Keys, Bill] | None:
    """The fastest keys with which a training fits the GPU of ``given``, with its bill; None where none do.

    Prompts and answers are shortened last of all, since the model then sees and says less.
    """
    for keys in _tried(study, model, given):
        bill = make_bill(with_keys(study, keys), model, given)
        if bill.engine_fits and bill.peak_gb <= _USED_SHARE * given.device_memory_gb:
            return keys, bill
    return None


def _tried(study: Study, model: Architecture, given: Assumptions) -> Iterator[Keys]:
    prompt, response = study.rollout.max_prompt_tokens, longest_response(study)
    assert prompt is not None
    trajectories = study.train.tasks_per_step * study.train.num_trajectories
    least = 2 * model.num_parameters + _WORKSPACE_BYTES
    tried = product(
        (1, 2, 4),
        ((False, study.train.micro_batch_size), (False, 1), (True, study.train.micro_batch_size), (True, 1)),
        (trajectories, trajectories // 2, trajectories // 4, 1),
    )
    for shorter, in_passes, at_once in tried:
        lengths = prompt // shorter, max(1024, response // shorter)
        room = least + max(1, at_once) * model.kv_bytes(sum(lengths))
        share = math.ceil(room / (given.device_memory_gb * GB) / _SHARE_STEP) * _SHARE_STEP
        if share < 0.95:
            yield Keys(round(share, 2), *in_passes, *lengths)


def table(study: Study, changes: Mapping[str, Any] | None = None) -> str:
    """For each size of GPU the keys that a training takes, its peak and a step's time on a GPU as fast as assumed.

    Args:
        changes: of what is assumed, by name.
    """
    model = architecture(study)
    study = with_lengths(study, study.train.init)
    head = (
        *("GPU", "train.vllm_memory_share", "gradient_checkpointing", "micro_batch_size"),
        *("prompt", "answer", "peak", "a step"),
    )
    rows: list[tuple[str, ...]] = [head]
    for name, memory_gb in SIZES.items():
        given = assumptions(study.scale, {**(changes or {}), "device_memory_gb": memory_gb})
        found = fitting_keys(study, model, given)
        if found is None:
            rows.append((name, "too little: take a smaller model (config/coder_small.yaml)", *[""] * (len(head) - 2)))
            continue
        keys, bill = found
        rows.append(
            (
                name,
                f"{keys.vllm_memory_share:.2f}",
                str(keys.gradient_checkpointing).lower(),
                str(keys.micro_batch_size),
                f"{keys.max_prompt_tokens:,}",
                f"{keys.max_response_tokens:,}",
                f"{bill.peak_gb:.0f} GB",
                f"{bill.step_s:.0f} s",
            )
        )
    widths = [max(len(row[i]) for row in rows if row[2] or i == 0) + 2 for i in range(len(head))]
    return "".join("".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True)).rstrip() + "\n" for row in rows)


def check_memory(study: Study, memory_gb: float) -> None:
    """Whether a training will fit a GPU that holds so much, before anything is loaded.

    Args:
        study: as `Study.for_run` gives it, with every length a number.

    Raises:
        DeviceError: it will not; the text has the keys with which it would.
    """
    model = architecture(study)
    given = assumptions(study.scale, {"device_memory_gb": memory_gb})
    bill = make_bill(study, model, given)
    if bill.engine_fits and bill.peak_gb <= memory_gb:
        return
    what = f"this training takes {bill.peak_gb:.1f} GB, and the GPU has {memory_gb:.1f}"
    if not bill.engine_fits:
        what = (
            f"train.vllm_memory_share is {study.train.vllm_memory_share:g}, {bill.engine_gb:.0f} GB of this GPU, too "
            f"little for the engine's weights and one whole answer"
        )
    found = fitting_keys(study, model, given)
    if found is None:
        raise DeviceError(
            f"{what}: no keys make it fit, take a smaller model (config/coder_small.yaml) or a larger GPU"
        )
    raise DeviceError(f"{what}: set {found[0].said()}")
