"""Pretrained weights go to school: continued pretraining on the kernel writer's conversations. See docs/pretraining.md.

A killed training goes on from its last checkpoint, with the batches that it would have had.
"""

from __future__ import annotations

import logging
import math
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kevin.core import files
from kevin.core.config import Study
from kevin.core.config.base_model import FREE
from kevin.core.errors import ConfigError
from kevin.core.progress import progress
from kevin.core.types import canonical_json, digest
from kevin.policy.weights import weights_identity
from kevin.train.base_model import rate_share, summarise_training, write_training
from kevin.train.corpus import CHUNK, NO_PASTS, Pasts, Writers, school_tasks
from kevin.train.past import pasts_identity, read_pasts
from kevin.train.pretrained import load_pretrained, save_pretrained
from kevin.train.school_batches import Ahead, Sample, SchoolBatch, cut, held_out_samples, school_batches, summed_loss
from kevin.train.stability import TrainingStoppedError

if TYPE_CHECKING:
    from kevin.train.ranks import Pupil, Ranks

log = logging.getLogger(__name__)

_BETAS = (0.9, 0.95)
_MAX_GRAD_NORM = 1.0
_STATE = "state.pt"
BATCH_TOKENS = 48_000
"""Of a step, prompts included: whole conversations until there are as many."""
NUM_HELD_OUT = 48
"""Conversations in styles that are never trained on; the loss on their answers is recorded."""
EVALUATE_EVERY = 50
"""Steps between two such records; the last step always has one."""
CHECKPOINT_S = 300.0
"""Between checkpoints; a killed training goes on from the last one."""


def train_school(
    study: Study,
    out_dir: Path,
    model: Path | None = None,
    *,
    past_tasks: Path | None = None,
    past_turns: Sequence[Path] = (),
) -> None:
    """Load ``base_model.init``, train it on the writer's conversations, and save a Hugging Face folder with its
    ``training.jsonl`` and ``summary.json``. Without a past all of them ask for a first turn.

    Args:
        model: the same weights in a folder, of `kevin.train.pretrained.unpack_weights`.
        past_tasks: of `kevin.train.past.write_past_tasks`.
        past_turns: turns.parquet of `kevin.train.past_answers`.

    Raises:
        ConfigError: as `load_pretrained`; a dialect that the kernel writer does not write; a corpus that does not fit.
        DataError: as `kevin.train.past.read_pasts`.
        DeviceError: the device ran out of memory.
        TrainingStoppedError: a loss that is not a finite number.
    """
    config = study.base_model
    school = config.pretraining
    if config.init is None:
        raise ConfigError("base_model.init names no pretrained weights to train further")
    if study.dialect != "c_abi":
        raise ConfigError("the base model can be trained for dialect c_abi only")
    tasks = school_tasks(study)
    pasts = NO_PASTS
    if past_tasks is not None:
        pasts = read_pasts(study, past_tasks, past_turns, tasks)
        log.info("%d judged answers to %d tasks", sum(len(p.answers) for p in pasts.school), len(pasts.school))
    start = str(model or config.init)
    from transformers.utils.logging import disable_progress_bar

    from kevin.train import ranks
    from kevin.train.unpadded import takes_rows

    disable_progress_bar()  # of loading and saving; the training has its own

    devices = ranks.school_devices(school.num_gpus)
    folder = out_dir.with_name(f".{out_dir.name}.school")
    num_workers = max(1, len(os.sched_getaffinity(0)) - 1)
    with Writers(study, tasks, num_workers, pasts) as writers, ranks.Ranks(devices, school) as all_ranks:
        network, tokenizer = load_pretrained(start)
        pupil = ranks.make_pupil(network, int(tokenizer.pad_token_id), devices[0], school)
        log.info("%d tasks, a model of %d parameters", len(tasks), network.num_parameters())
        context = getattr(network.config.get_text_config(), "max_position_embeddings", None) or config.max_tokens
        longest = min(config.max_tokens, context)
        training = Training(pupil, all_ranks, Checkpoint(folder, _identity(study, pasts, start)))
        training.resume()
        all_ranks.meet(pupil)
        batches = school_batches(
            writers.chunks(training.next_conversation // CHUNK),
            tokenizer,
            first=training.next_conversation,
            batch_tokens=BATCH_TOKENS,
            micro_batch_tokens=school.micro_batch_tokens,
            longest=longest,
            padded=not takes_rows(network),
            num_devices=len(devices),
        )
        held_out = {"held_out_loss": held_out_samples(writers, tokenizer, NUM_HELD_OUT, longest)}
        if pasts.held_out:
            later = held_out_samples(writers, tokenizer, NUM_HELD_OUT, longest, "held out later")
            held_out |= {"held_out_later_loss": later} if later else {}
        training.run(batches, held_out)
    with files.whole_folder(out_dir) as partial:
        save_pretrained(partial, network, tokenizer)
        write_training(partial, training.records, training.summary(study))
    shutil.rmtree(folder, ignore_errors=True)


def _identity(study: Study, pasts: Pasts, start: str) -> str:
    """Digest of all that the weights follow from."""
    parts = {
        "init": start,
        "weights": weights_identity(start),
        "pretraining": study.base_model.pretraining.model_dump(mode="json", exclude=set(FREE)),
        "max_tokens": study.base_model.max_tokens,
        "tasks": study.tasks.model_dump(mode="json"),
        "study": [study.seed, study.language],
    }
    if pasts.school:
        parts |= {"pasts": pasts_identity(pasts)}
    return digest("school", canonical_json(parts))


class Checkpoint:
    """One file with a training's state, replaced as a whole; of another training it is not used."""

    def __init__(self, folder: Path, identity: str) -> None:
        self._path, self._identity = folder / _STATE, identity

    def read(self) -> dict[str, Any] | None:
        import torch

        if not self._path.exists():
            return None
        state: dict[str, Any] = torch.load(self._path, map_location="cpu", weights_only=True)
        if state["identity"] != self._identity:
            log.warning("%s is of another training: the school starts anew", self._path)
            return None
        return state

    def write(self, state: dict[str, Any]) -> None:
        import torch

        with files.atomic_path(self._path) as tmp:
            torch.save({"identity": self._identity, **state}, tmp)


class Training:
    """A model at school: its optimizer, where it is in the corpus, and what was recorded."""

    def __init__(self, pupil: Pupil, ranks: Ranks, checkpoint: Checkpoint) -> None:
        import torch

        self._pupil, self._ranks, self._checkpoint = pupil, ranks, checkpoint
        self._model, self._school = pupil.model, pupil.school
        self._optimizer = torch.optim.AdamW(
            self._model.parameters(),
            lr=self._school.learning_rate,
            betas=_BETAS,
            weight_decay=0.0,
            fused=self._model.device.type == "cuda",
        )
        self.next_conversation = 0
        self.records: list[dict[str, float]] = []
        self._waited_s = self._spent_s = 0.0
        self._start = self._saved = time.monotonic()

    def resume(self) -> None:
        """Go on from the checkpoint, where there is one."""
        state = self._checkpoint.read()
        if state is None:
            return
        self._model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        self.next_conversation, self.records = state["next_conversation"], state["records"]
        self._spent_s = self.records[-1]["elapsed_s"]
        log.info("going on after step %d", len(self.records))

    def _save(self) -> None:
        self._checkpoint.write(
            {
                "model": self._model.state_dict(),
                "optimizer": self._optimizer.state_dict(),
                "next_conversation": self.next_conversation,
                "records": self.records,
            }
        )
        self._saved = time.monotonic()

    def run(self, made: Any, held_out: Mapping[str, Sequence[Sample]]) -> None:
        """The steps that are still to be made, on the batches ``made``.

        ``held_out``: by the name of the loss in the records what it is measured on.
        """
        school = self._school
        ahead = Ahead(made)
        batches = iter(ahead)
        try:
            with progress(school.num_steps, "school", "steps") as bar:
                bar.update(len(self.records))
                while len(self.records) < school.num_steps:
                    began = time.monotonic()
                    batch = next(batches)
                    waited_s = time.monotonic() - began
                    self._waited_s += waited_s
                    record = {**self._step(batch), "waited_s": waited_s}
                    last = len(self.records) + 1 == school.num_steps
                    if last or record["step"] % EVALUATE_EVERY == 0:
                        for name, samples in held_out.items():
                            record[name] = self.mean_loss(samples)
                            said = name.replace("held_out_", "held-out ").replace("_", " ")
                            log.info("step %d: %s %.4f", record["step"], said, record[name])
                    self.records.append(record)
                    self.next_conversation = batch.next_conversation
                    bar.note(f"loss {record['loss']:.3f}")
                    bar.update()
                    if not last and time.monotonic() - self._saved > CHECKPOINT_S:
                        self._save()
        finally:
            ahead.stop()
        self._model.eval()
        if self._waited_s > 0.1 * (time.monotonic() - self._start):
            log.warning("%.0f s went by in waiting for conversations: writing them takes more cores", self._waited_s)

    def _step(self, batch: SchoolBatch) -> dict[str, float]:
        import torch

        step = len(self.records) + 1
        rate = self._school.learning_rate * rate_share(step - 1, self._school.num_steps)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        loss = self._ranks.add_gradients(batch)
        norm = torch.nn.utils.clip_grad_norm_(self._model.parameters(), _MAX_GRAD_NORM)
        if not (math.isfinite(loss) and math.isfinite(float(norm))):
            raise TrainingStoppedError(
                f"school, step {step}: loss {loss}, gradient norm {float(norm)}; lower "
                f"base_model.pretraining.learning_rate ({self._school.learning_rate:g})"
            )
        self._optimizer.step()
        self._ranks.spread()
        return {
            "step": step,
            "loss": loss,
            "grad_norm": float(norm),
            "learning_rate": rate,
            "num_tokens": batch.num_tokens,
            "num_answer_tokens": batch.num_answer_tokens,
            "elapsed_s": self._spent_s + time.monotonic() - self._start,
        }

    def mean_loss(self, samples: Sequence[Sample]) -> float:
        """Nats a token of the answers."""
        import torch

        from kevin.train.unpadded import steady_attention, takes_rows

        model, pad = self._model, self._pupil.pad
        with torch.no_grad(), self._pupil.autocast(), steady_attention():
            parts = cut(samples, self._school.micro_batch_tokens, padded=not takes_rows(model))
            total = sum(float(summed_loss(model, part, pad)) for part in parts)
        return total / sum(s.num_answer for s in samples)

    def summary(self, study: Study) -> dict[str, Any]:
        """As the base model's that is made from scratch, with the loss on what was held out."""
        return {
            **summarise_training(self.records),
            "init": study.base_model.init,
            **{name: value for name, value in self.records[-1].items() if name.startswith("held_out_")},
            "num_conversations": self.next_conversation,
        }
