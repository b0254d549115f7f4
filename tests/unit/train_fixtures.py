"""A model of a few tokens, of which some are whole answers, judges by rule, and a study to train it in seconds."""

from __future__ import annotations

from pathlib import Path

import core_fixtures
from core_fixtures import SPEC, make_verdict
from model_fixtures import random_model
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from kevin.core import files
from kevin.core.config import Study
from kevin.core.errors import HarnessError
from kevin.core.types import Kernel, Outcome, Task, Verdict
from kevin.train.records import TIMES, read_metrics
from kevin.train.run import run_training

PAD, END, USER, ASSISTANT, UNKNOWN = "<|pad|>", "<|end|>", "<|user|>", "<|assistant|>", "<|unknown|>"
OKAY = "<think>\nOkay, here.\n</think>\n"
FAST, SLOW, WRONG = (f"```cpp\n{name}\n```\nSummary: {name}.\n" for name in ("fast", "slow", "wrong"))
SPEEDUPS = {"fast": 3.0, "slow": 1.0}
TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|> {{ m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %} <|assistant|>{% endif %}"
)


def make_task(name: str, level: int = 1) -> Task:
    return core_fixtures.make_task(f"l{level}/{name}", level=level, source=f"# {name}\n", spec=SPEC)


TASKS = [make_task(n, level) for level in (1, 2) for n in ("a", "b", "c")]


def save_model(folder: Path, seed: int = 0, *, template: str | None = TEMPLATE) -> Path:
    """A model folder whose weights are random."""
    words = [PAD, END, USER, ASSISTANT, UNKNOWN, OKAY, FAST, SLOW, WRONG]
    core = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token=UNKNOWN))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token=END,
        pad_token=PAD,
        unk_token=UNKNOWN,
        additional_special_tokens=[USER, ASSISTANT, OKAY, FAST, SLOW, WRONG],
    )
    tokenizer.chat_template = template
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 32, "max_position_embeddings": 1024}
    model = random_model(tokenizer, seed=seed, **sizes)
    model.generation_config.eos_token_id = [tokenizer.convert_tokens_to_ids(t) for t in (END, USER, ASSISTANT)]
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def verdict(kernel: Kernel) -> Verdict:
    name = kernel.source.strip()
    speedup = SPEEDUPS.get(name)
    return make_verdict(
        Outcome.CORRECT if speedup else Outcome.INCORRECT,
        kernel_us=1 if speedup else None,
        eager_us=speedup or 1,
        key=f"key {name}",
        kernel_digest=kernel.digest,
        message="" if speedup else "the values differ",
    )


def judge(pairs: list[tuple[Task, Kernel]]) -> list[Verdict | HarnessError]:
    return [verdict(kernel) for _, kernel in pairs]


def make_study(folder: Path, *, reward: dict | None = None, **train: object) -> Study:
    """A study with one run, ``tiny``; its model and tasks lie in ``folder``."""
    if not (folder / "base").exists():
        save_model(folder / "base")
        files.write_tasks(folder / "tasks.parquet", [(t, "train") for t in TASKS], {})
    settings = {
        "num_steps": 3,
        "tasks_per_step": 2,
        "num_trajectories": 4,
        "num_turns": 2,
        "micro_batch_size": 4,
        "learning_rate": 0.01,
        "max_grad_norm": 1.0,
        "stop_not_okay": None,
        "stop_repetition": None,
    }
    return Study.model_validate(
        {
            "results": str(folder / "results"),
            "policies": {"base": {"model": str(folder / "base")}},
            "rollout": {"max_prompt_tokens": 512, "max_response_tokens": 5},
            "train": settings | train,
            "reward": reward or {},
            "runs": {"tiny": {}},
        }
    )


def failing_judge(every=5):
    """Fails on every fifth kernel."""
    count = 0

    def judging(pairs):
        nonlocal count
        results = []
        for _, kernel in pairs:
            count += 1
            results.append(HarnessError("no device") if count % every == 0 else verdict(kernel))
        return results

    return judging


def all_wrong_for(name):
    """A judge to whom every kernel of one task is wrong."""

    def judging(pairs):
        wrong = {"source": "wrong"}
        return [verdict(k.model_copy(update=wrong) if t.name == name else k) for t, k in pairs]

    return judging


class Killed(BaseException):
    """Stands for a kill: nothing catches it."""


def train(folder, *, out="out", judge=judge, **options):
    study = make_study(folder, **options)
    run_training(study, "tiny", folder / "tasks.parquet", folder / out, judge=judge)
    return curve(folder / out)


def curve(out):
    return [{k: v for k, v in r.items() if k != TIMES} for r in read_metrics(out / "metrics.jsonl")]
