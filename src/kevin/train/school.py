"""Pretrained weights go to school: continued pretraining on the kernel writer's conversations. See docs/pretraining.md.

A killed training goes on from its last checkpoint, with the batches that it would have had.
"""

from __future__ import annotations

import functools
import logging
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.utils.logging import disable_progress_bar

from kevin.core.config import PretrainingConfig, Study
from kevin.core.config.base_model import FREE, check_pretraining_gpus
from kevin.core.errors import ConfigError, DeviceError, first_line
from kevin.core.progress import Progress
from kevin.core.types import canonical_json, digest
from kevin.policy.transformers import fit_threads
from kevin.policy.weights import weights_identity
from kevin.train.pretrained import load_pretrained
from kevin.train.ranks import Ranks, start_ranks
from kevin.train.school_batches import (
    Corpus,
    MicroBatch,
    Sample,
    SchoolBatch,
    ahead,
    cut,
    held_out_samples,
    school_batches,
    summed_loss,
)
from kevin.train.training import Checkpoint, Training, save_training, summarise_training
from kevin.train.unpadded import compile_layers, compiling, leave_out_padding, steady_attention, takes_rows

log = logging.getLogger(__name__)

_BETAS = (0.9, 0.95)
BATCH_TOKENS = 48_000
"""Of a step, prompts included: whole conversations until there are as many."""
NUM_HELD_OUT = 48
"""Conversations in styles that are never trained on; the loss on their answers is recorded."""
EVALUATE_EVERY = 50
"""Steps between two such records; the last step always has one."""
CHECKPOINT_S = 300.0
"""Between checkpoints; a killed training goes on from the last one."""


def train_school(study: Study, corpus: Corpus, out_dir: Path, model: Path | None = None) -> None:
    """Load ``base_model.init``, train it on the corpus, and save a Hugging Face folder with its ``training.jsonl`` and
    ``summary.json``.

    Args:
        model: the same weights in a folder, of `kevin.train.pretrained.unpack_weights`.

    Raises:
        ConfigError: as `load_pretrained`; a corpus that does not fit.
        DeviceError: the device ran out of memory.
        TrainingStoppedError: a loss that is not a finite number.
    """
    config = study.base_model
    school = config.pretraining
    if config.init is None:
        raise ConfigError("base_model.init names no pretrained weights to train further")
    start = str(model or config.init)
    disable_progress_bar()  # of loading and saving; the training has its own

    devices = school_devices(school.num_gpus)
    folder = out_dir.with_name(f".{out_dir.name}.school")
    checkpoint = Checkpoint(folder, _identity(study, corpus.identity, start))
    with start_ranks(devices, functools.partial(_follow, start, school, checkpoint)) as ranks:
        network, tokenizer = load_pretrained(start)
        log.info("a model of %d parameters", network.num_parameters())
        context = getattr(network.config.get_text_config(), "max_position_embeddings", None) or config.max_tokens
        longest = min(config.max_tokens, context)
        training = School(network, school, ranks, checkpoint)
        batches = school_batches(
            corpus.chunks(training.next_conversation),
            tokenizer,
            first=training.next_conversation,
            batch_tokens=BATCH_TOKENS,
            micro_batch_tokens=school.micro_batch_tokens,
            longest=longest,
            padded=not takes_rows(network),
            num_devices=len(devices),
        )
        held_out = {"held_out_loss": held_out_samples(corpus, tokenizer, NUM_HELD_OUT, longest)}
        if corpus.has_held_out_later:
            later = held_out_samples(corpus, tokenizer, NUM_HELD_OUT, longest, "held out later")
            held_out |= {"held_out_later_loss": later} if later else {}
        training.run(batches, held_out)
    save_training(out_dir, network, tokenizer, training.records, training.summary(study))
    shutil.rmtree(folder, ignore_errors=True)


def _identity(study: Study, corpus: str | None, start: str) -> str:
    """Digest of all that the weights follow from. ``corpus``: identity of what is learned from."""
    parts = {
        "init": start,
        "weights": weights_identity(start),
        "pretraining": study.base_model.pretraining.model_dump(mode="json", exclude=set(FREE)),
        "max_tokens": study.base_model.max_tokens,
        "tasks": study.tasks.model_dump(mode="json"),
        "study": [study.seed, study.language],
    }
    if corpus is not None:
        parts |= {"pasts": corpus}
    return digest("school 2", canonical_json(parts))  # the number is that of a checkpoint's form


def school_devices(num_gpus: int) -> list[torch.device]:
    """Of this machine, as many GPUs as are asked for; without any the CPU, once.

    Raises:
        DeviceError: fewer are visible.
    """
    if not torch.cuda.is_available():
        return [torch.device("cpu")]
    check_pretraining_gpus(num_gpus, torch.cuda.device_count())
    return [torch.device("cuda", i) for i in range(num_gpus)]


def _follow(start: str, school: PretrainingConfig, checkpoint: Checkpoint, ranks: Ranks) -> None:
    """What the process of every other device does."""
    disable_progress_bar()
    School(load_pretrained(start)[0], school, ranks, checkpoint).follow()


class School(Training):
    """A training on a corpus without end, whose steps devices share; it goes on from its last checkpoint."""

    def __init__(self, model: PreTrainedModel, school: PretrainingConfig, ranks: Ranks, checkpoint: Checkpoint) -> None:
        """``model`` is made ready for school on its process's device. Returns once all processes are there."""
        self._network, self._school, self._ranks, self._checkpoint = model, school, ranks, checkpoint
        fit_threads(model.num_parameters())
        leave_out_padding(model)
        model.to(ranks.devices[ranks.rank])  # type: ignore[arg-type]
        if model.device.type == "cuda":
            compile_layers(model)
        model.train()
        optimizer = torch.optim.AdamW(
            model.parameters(),
            lr=school.learning_rate,
            betas=_BETAS,
            weight_decay=0.0,
            fused=model.device.type == "cuda",
        )
        super().__init__(model, [optimizer], school.num_steps, rate_key="base_model.pretraining.learning_rate")
        self.next_conversation = 0
        self._saved = time.monotonic()
        if (state := checkpoint.read()) is not None:
            self.restore(state)
            self.next_conversation = state["next_conversation"]
        ranks.meet(model)

    def run(self, made: Iterator[SchoolBatch], held_out: Mapping[str, Sequence[Sample]]) -> None:
        """The steps that are still to be made, on the batches ``made``.

        ``held_out``: by the name of the loss in the records what it is measured on.
        """
        batches = ahead(made)
        start, all_waited_s = time.monotonic(), 0.0
        try:
            with Progress(self.num_steps, "school", "steps") as bar:
                bar.update(len(self.records))
                while len(self.records) < self.num_steps:
                    began = time.monotonic()
                    batch = next(batches)
                    waited_s = time.monotonic() - began
                    all_waited_s += waited_s
                    record = self.step(functools.partial(self._set_gradients, batch))
                    record["waited_s"] = waited_s
                    is_last = len(self.records) == self.num_steps
                    if is_last or record["step"] % EVALUATE_EVERY == 0:
                        self._evaluate(record, held_out)
                    self.next_conversation = batch.next_conversation
                    bar.note(f"loss {record['loss']:.3f}")
                    bar.update()
                    if not is_last and time.monotonic() - self._saved > CHECKPOINT_S:
                        self._checkpoint.write({**self.state(), "next_conversation": self.next_conversation})
                        self._saved = time.monotonic()
        finally:
            batches.close()
        self._network.eval()
        if all_waited_s > 0.1 * (time.monotonic() - start):
            log.warning("%.0f s went by in waiting for conversations: writing them takes more cores", all_waited_s)

    def follow(self) -> None:
        """The steps that the first process makes."""
        while len(self.records) < self.num_steps:
            self.step(functools.partial(self._set_gradients, None))

    def _set_gradients(self, first: SchoolBatch | None) -> dict[str, float]:
        """Those of the mean loss over the answers of the ``first`` process's batch, in nats a token.

        Raises:
            KevinError: out of memory, or a layer that cannot be compiled, on any device; a process was ended.
        """
        batch: SchoolBatch = self._ranks.firsts(first)
        self._network.zero_grad(set_to_none=True)
        try:
            loss = self._add_gradients(batch.shares[self._ranks.rank], batch.num_answer_tokens)
            loss = self._ranks.add_up(self._network, loss)
        except torch.OutOfMemoryError as e:
            raise DeviceError(
                f"the device ran out of memory at school: {first_line(e)}. Lower "
                f"base_model.pretraining.micro_batch_tokens ({self._school.micro_batch_tokens})"
            ) from e
        return {"loss": loss, "num_tokens": batch.num_tokens, "num_answer_tokens": batch.num_answer_tokens}

    def _add_gradients(self, share: Sequence[MicroBatch], num_answer_tokens: int) -> float:
        losses = [torch.zeros((), device=self._network.device)]
        with compiling(), steady_attention():
            for samples in share:
                with self._autocast():
                    loss = summed_loss(self._network, samples) / num_answer_tokens
                loss.backward()
                losses.append(loss.detach())
        return float(torch.stack(losses).sum())

    def _autocast(self) -> torch.autocast:
        """bfloat16 on a GPU."""
        kind = self._network.device.type
        return torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda")

    def _evaluate(self, record: dict[str, float], held_out: Mapping[str, Sequence[Sample]]) -> None:
        for name, samples in held_out.items():
            record[name] = self.mean_loss(samples)
            said = name.replace("held_out_", "held-out ").replace("_", " ")
            log.info("step %d: %s %.4f", record["step"], said, record[name])

    def mean_loss(self, samples: Sequence[Sample]) -> float:
        """Nats a token of the answers."""
        with torch.no_grad(), self._autocast(), steady_attention():
            parts = cut(samples, self._school.micro_batch_tokens, padded=not takes_rows(self._network))
            total = sum(float(summed_loss(self._network, part)) for part in parts)
        return total / sum(s.num_answer for s in samples)

    def summary(self, study: Study) -> dict[str, Any]:
        """As the base model's that is made from scratch, with the loss on what was held out."""
        return {
            **summarise_training(self.records),
            "init": study.base_model.init,
            **{name: value for name, value in self.records[-1].items() if name.startswith("held_out_")},
            "num_conversations": self.next_conversation,
        }
