"""The study's own base language model: a small Qwen3, trained from scratch on the kernel writer's transcripts.

It plays the part of a pretrained model: it knows the language of kernels and of this dialogue, and was never shown
which kernels are good. See docs/pretraining.md.
"""

from __future__ import annotations

import logging
import math
import os
import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kevin.core.config import BaseModelConfig, Study
from kevin.core.errors import ConfigError
from kevin.core.files import whole_folder
from kevin.core.history import HistoryConfig
from kevin.core.progress import progress
from kevin.core.provenance import jobs_side_by_side
from kevin.core.texts import strict_json
from kevin.core.types import Task
from kevin.tasks.build import build_tasks
from kevin.tasks.catalog import catalog
from kevin.train.packing import ATTENTION, Encoder, Row, bucketed, register_attention
from kevin.train.tokenizer import VOCABULARY, train_tokenizer
from kevin.writer.plan import Habits
from kevin.writer.transcripts import MAX_TURNS, Transcript, transcripts

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

    from kevin.train.copying import Drills

log = logging.getLogger(__name__)

OWN_TASKS = 4
"""How much more often a task of the study is written for than another of the catalog."""
FIRST_ANSWERS, LATER_ANSWERS, LAST_ANSWERS = 6, 3, 5
"""Answers to a first turn's prompt; at each later turn where all of them are asked for; at the last turn alone."""
SUMMARY = "summary.json"
"""What became of the training, in the model's folder."""
_TOKENIZER_TRANSCRIPTS = 800
BATCH_SIZE = 2
"""Transcripts a step, each a conversation with several answers."""
LEARNING_RATE = 3e-3
"""Peak of AdamW's schedule: embeddings and vectors."""
MATRIX_LEARNING_RATE = 0.02
"""Peak of Muon's schedule: the matrices of the blocks."""
_NICE = 19
"""On a CPU: it takes every core that jobs beside it leave, whose kernels are timed meanwhile."""
_WARMUP_SHARE = 0.05
_LAST_SHARE = 0.1
"""Of the steps, whose mean loss is the final one."""


def training_tasks(study: Study) -> list[Task]:
    """Tasks of the transcripts: the study's own, every split of them, and at a lower share the rest of the catalog.

    The held-out tasks are among them, as a pretrained model will have met any operator: transcripts show right and
    wrong kernels alike, without a preference. What is held out is held out from reinforcement learning.
    """
    own = [task for task, _ in build_tasks(study) if task.origin != "kernelbench"]  # which the writer does not know
    known = {task.id for task in own}
    others = [task for task in catalog(study.task_size) if task.id not in known]
    return [*own * OWN_TASKS, *others]


def train_base_model(study: Study, out_dir: Path) -> None:
    """Write transcripts, learn the tokenizer, train, and save a Hugging Face folder with its ``training.jsonl`` and
    ``summary.json``.

    The number of steps follows from the configuration alone. A killed run leaves no folder and starts again.

    Raises:
        ConfigError: a dialect that the kernel writer does not write.
    """
    config = study.base_model
    if study.dialect != "c_abi":
        raise ConfigError("the base model can be trained for dialect c_abi only")
    import torch

    from kevin.train.copying import Drills

    start = time.monotonic()
    torch.manual_seed(study.seed)
    if jobs_side_by_side() > 1 and not torch.cuda.is_available():
        os.nice(_NICE)
    torch.set_num_threads(1)  # the operators are too small to share: two threads mostly wait for each other
    written = _write(study, config)
    tokenizer = train_tokenizer(_texts(written[:_TOKENIZER_TRANSCRIPTS]), VOCABULARY)
    encoder = Encoder(tokenizer)
    encoder.know(_texts(written))
    rows = [r for r in map(encoder.row, written) if r.num_positions <= config.max_tokens]
    num_tokens = sum(r.num_tokens for r in rows)
    log.info("%d transcripts, %d tokens, vocabulary of %d", len(rows), num_tokens, len(tokenizer))
    rng = random.Random(f"kevin batches, seed {study.seed}")
    together = bucketed(rows, BATCH_SIZE)
    epochs = [batch for _ in range(config.num_epochs) for batch in rng.sample(together, len(together))]
    batches = epochs[: config.max_steps]
    model = new_model(config, tokenizer, study.seed)
    drills = Drills([row for batch in batches for row in batch], set(tokenizer.all_special_ids))
    records = _train(model, batches, drills, int(tokenizer.pad_token_id), study, start)
    _save(out_dir, model, tokenizer, records, summarise_training(records))
    log.info("base model of %d parameters in %.0f s", model.num_parameters(), time.monotonic() - start)


def _write(study: Study, config: BaseModelConfig) -> list[Transcript]:
    """The corpus."""
    history = study.transcripts_history
    written = []
    with progress(config.num_transcripts, "write transcripts", "transcripts") as bar:
        for transcript in transcripts(
            training_tasks(study),
            study.language,
            config.num_transcripts,
            MAX_TURNS,
            study.seed,
            first_answers=FIRST_ANSWERS,
            later_answers=later_answers(history),
            habits=Habits(**config.writer.model_dump()),
            history=history,
        ):
            written.append(transcript)
            bar.update()
    return written


def later_answers(history: HistoryConfig) -> int:
    """Answers to a later turn's prompt: where no turn's prompt begins with another's, all go to the last one."""
    return LATER_ANSWERS if history.is_whole else LAST_ANSWERS


def _texts(written: Sequence[Transcript]) -> list[str]:
    prompts = [m.content for t in written for m in t.conversation]
    return prompts + [a for t in written for e in t.exchanges for a in e.answers]


def new_model(config: BaseModelConfig, tokenizer: PreTrainedTokenizerFast, seed: int = 0) -> Qwen3ForCausalLM:
    """A model of the configured size with random weights, on the GPU where there is one.

    Args:
        seed: of the heads that copy; all other weights are drawn from torch's own generator.
    """
    end, pad = int(tokenizer.eos_token_id), int(tokenizer.pad_token_id)
    return bare_model(config, len(tokenizer), end=end, pad=pad, seed=seed)


def bare_model(config: BaseModelConfig, vocab_size: int, *, end: int, pad: int, seed: int = 0) -> Qwen3ForCausalLM:
    """As `new_model`, for a vocabulary of this size with these special tokens."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from kevin.train.copying import ROPE_THETA, can_hold_copying_heads, set_copying_heads

    register_attention()
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=vocab_size,
            hidden_size=config.hidden_size,
            num_hidden_layers=config.num_layers,
            num_attention_heads=config.num_heads,
            num_key_value_heads=config.num_heads,
            head_dim=config.hidden_size // config.num_heads,
            intermediate_size=config.intermediate_size,
            max_position_embeddings=config.max_tokens,
            rope_parameters={"rope_type": "default", "rope_theta": ROPE_THETA},
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=end,
            pad_token_id=pad,
            attn_implementation=ATTENTION,  # type: ignore[call-arg]
        )
    )
    if can_hold_copying_heads(model):
        set_copying_heads(model, seed)
    return model.to("cuda" if torch.cuda.is_available() else "cpu")  # type: ignore[arg-type, no-any-return]


def rate_share(step: int, num_steps: int) -> float:
    """Share of the peak learning rate: linear warm-up, then a cosine down to a twentieth."""
    warmup = max(1, round(_WARMUP_SHARE * num_steps))
    if step < warmup:
        return (step + 1) / warmup
    along = (step - warmup) / max(1, num_steps - warmup)
    return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * along))


def make_optimizers(model: Qwen3ForCausalLM) -> list[torch.optim.Optimizer]:
    """AdamW for embeddings and vectors, Muon for the matrices of the blocks: one for those of each shape."""
    import torch

    from kevin.train.muon import Muon

    others = [p for n, p in model.named_parameters() if p.dim() < 2 or "embed" in n]
    matrices: dict[torch.Size, list[torch.nn.Parameter]] = {}
    for name, p in model.named_parameters():
        if p.dim() >= 2 and "embed" not in name:
            matrices.setdefault(p.shape, []).append(p)
    return [
        torch.optim.AdamW(others, lr=LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.0),
        *(Muon(like, lr=MATRIX_LEARNING_RATE, weight_decay=0.05) for like in matrices.values()),
    ]


def _train(
    model: Qwen3ForCausalLM, batches: Sequence[list[Row]], drills: Drills, pad: int, study: Study, start: float
) -> list[dict[str, float]]:
    """One pass over the batches; a record of every step. ``start``: when all of it began, monotonic seconds."""
    import torch

    from kevin.train.gradients import Gradients, step_parts

    rng = random.Random(f"kevin drills, seed {study.seed}")
    optimizers = make_optimizers(model)
    peaks = [LEARNING_RATE, *[MATRIX_LEARNING_RATE] * (len(optimizers) - 1)]
    records: list[dict[str, float]] = []
    model.train()
    with progress(len(batches), "train base model", "steps") as bar, Gradients(model) as gradients:
        for step, rows in enumerate(batches):
            share = rate_share(step, len(batches))
            for optimizer, peak in zip(optimizers, peaks, strict=True):
                for group in optimizer.param_groups:
                    group["lr"] = peak * share
            parts = step_parts(rows, drills, rng, pad)
            losses = gradients.set(parts)
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            gradients.step(optimizers)
            records.append(
                {
                    "step": step + 1,
                    "loss": sum(parts[i].weight * losses[i] for i in range(len(rows))),
                    "copying_loss": losses[-1],
                    "grad_norm": float(norm),
                    "learning_rate": peaks[0] * share,
                    "num_tokens": sum(part.batch.tokens.numel() for part in parts),
                    "elapsed_s": time.monotonic() - start,
                }
            )
            bar.note(f"loss {records[-1]['loss']:.3f}")
            bar.update()
    model.eval()
    return records


def summarise_training(records: Sequence[dict[str, float]]) -> dict[str, Any]:
    """What later stages and readers need to know: steps made, the final loss in nats a token, seconds."""
    last = [r["loss"] for r in records[-max(1, round(_LAST_SHARE * len(records))) :]]
    return {"num_steps": len(records), "loss": sum(last) / len(last), "elapsed_s": records[-1]["elapsed_s"]}


def _save(
    out_dir: Path,
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    records: Sequence[dict[str, float]],
    summary: dict[str, Any],
) -> None:
    """The folder appears complete or not at all."""
    from transformers import GenerationConfig

    with whole_folder(out_dir) as partial:
        model.generation_config = GenerationConfig(
            eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, do_sample=True
        )
        model.save_pretrained(partial)
        tokenizer.save_pretrained(partial)
        write_training(partial, records, summary)


def write_training(folder: Path, records: Sequence[Mapping[str, float]], summary: Mapping[str, Any]) -> None:
    """What is said of a training beside its weights: ``training.jsonl``, a record a step, and ``summary.json``."""
    (folder / "training.jsonl").write_text("".join(strict_json(r) + "\n" for r in records))
    (folder / SUMMARY).write_text(strict_json(summary, indent=1) + "\n")
