"""How long each stage of the laptop study will take on this machine, from two short measurements.

Counts follow from the configuration. What one unit costs is measured here (a training step of the base model, a
kernel's compilation) or was counted once on another machine and is scaled by the compilation.
"""

from __future__ import annotations

import random
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import torch

from kevin.core.config import Study
from kevin.core.types import Frozen, Kernel
from kevin.judge.compile.native import build_native
from kevin.tasks.catalog import catalog
from kevin.train.base_model import BATCH_SIZE, make_optimizers, new_model
from kevin.train.packing import Branch, Drills, Gradients, Row, step_parts
from kevin.train.tokenizer import VOCABULARY

_SPINE_TOKENS, _NUM_BRANCHES, _BRANCH_TOKENS = 128, 5, 83
"""Of a mean transcript, as packed for training."""
_NUM_STEPS = 8
"""That are made to see how long one takes; builds use as many cores as there are."""
_KERNEL = """\
#include <cmath>
extern "C" void launch(const float* x, float* out) {
  for (int64_t r = 0; r < x_d0; r++) {
    const float* p = x + r * x_d1;
    float top = p[0];
    #pragma omp simd reduction(max : top)
    for (int64_t n = 0; n < x_d1; n++) top = p[n] > top ? p[n] : top;
    double sum = 0;
    #pragma omp simd reduction(+ : sum)
    for (int64_t n = 0; n < x_d1; n++) sum += std::exp(p[n] - top);
    for (int64_t n = 0; n < x_d1; n++) out[r * x_d1 + n] = std::exp(p[n] - top) / sum;
  }
}
"""
"""A softmax, which takes as long to compile as the mean of the writer's kernels."""

COMPILE_S = 0.17
"""Of one typical kernel on the machine that the constants below were counted on, both cores busy."""
WRITE_S = 0.003
"""Writing one transcript."""
IMPORT_S = 5.0
"""Starting a step: Python, PyTorch, transformers."""
JUDGE_S = 7.0
"""More of that where kernels are judged: the judge's processes, half beside the imports."""
DEVICE_S = 0.4
"""Of a correct kernel on the judging core: trials and timing."""
CORRECT_SHARE = 0.5
"""Of a policy's kernels, roughly; the others are told apart soon."""
BASELINE_S = 1.6
"""A task compiled by torch.compile and timed."""
TASK_S = 0.08
"""A composed task run some twenty times by the quality filters."""
TOKENIZER_S = 3.5
FIGURES_S = 60.0
"""Scores, tables, figures and the page."""
ANSWER_S = 0.05
"""Decoding one answer of the base model among many."""
UPDATE_S = 0.1
"""The gradient steps of one sample, once for each pass."""
_REPEATED_SHARE = 0.15
"""Of a policy's kernels that were judged before; trained policies repeat themselves more."""


_TOGETHER = 0.65
"""Of the sum of the stages, which each alone would take, where two at a time share two cores or more."""


class Pace(Frozen):
    """What was measured here."""

    step_s: float
    """A training step of the base model."""
    compile_s: float
    """Compiling one kernel while every core does the same."""
    num_cores: int


class Stage(NamedTuple):
    name: str
    seconds: float
    file: str
    """Relative to the results: once it is there the stage is done."""


def measure_pace(study: Study, num_cores: int) -> Pace:
    """Take some seconds to find out. Raises KevinError as the judge does."""
    return Pace(step_s=_step_s(study), compile_s=_compile_s(study, num_cores), num_cores=num_cores)


def _step_s(study: Study) -> float:
    """A step on rows as long as those of the study, of random tokens."""
    rng = random.Random(0)
    torch.set_num_threads(1)

    def tokens(num: int) -> list[int]:
        return [rng.randrange(VOCABULARY) for _ in range(num)]

    branches = [Branch(_SPINE_TOKENS, tokens(_BRANCH_TOKENS)) for _ in range(_NUM_BRANCHES)]
    rows = [Row(tokens(_SPINE_TOKENS), branches)] * BATCH_SIZE
    model = new_model(study.base_model, VOCABULARY, end=0, pad=1)
    optimizers = make_optimizers(model)
    drills = Drills(rows, ())
    times = []
    with Gradients(model) as gradients:
        for _ in range(_NUM_STEPS):
            start = time.monotonic()
            gradients.set(step_parts(rows, drills, rng, 1))
            list(gradients.map(lambda optimizer: optimizer.step(), optimizers))
            times.append(time.monotonic() - start)
    return sum(times[1:]) / len(times[1:])


def _compile_s(study: Study, num_cores: int) -> float:
    spec = next(t.spec for t in catalog(study.task_size) if t.name == "softmax")
    assert spec is not None
    num = 4 * num_cores
    with tempfile.TemporaryDirectory(prefix="kevin-pace-") as folder, ThreadPoolExecutor(num_cores) as threads:

        def build(number: int) -> None:
            source = f"{_KERNEL}// {number}\n"
            build_native(Kernel(dialect="c_abi", language="cpp", source=source), spec, study.judge, Path(folder))

        start = time.monotonic()
        list(threads.map(build, range(num)))
        return (time.monotonic() - start) * num_cores / num


def forecast(study: Study, pace: Pace) -> list[Stage]:
    """The stages of the study in order, with seconds: estimates, good to about a third."""
    scale = pace.compile_s / COMPILE_S
    build_s, device_s = pace.compile_s / pace.num_cores, DEVICE_S * scale**0.5
    fresh_s = (build_s + CORRECT_SHARE * device_s) * (1 - _REPEATED_SHARE)
    tasks, base, rollout = study.tasks, study.base_model, study.rollout
    num_eval = tasks.num_eval_level1 + tasks.num_eval_level2
    num_composed = tasks.num_train + tasks.num_eval_level2
    num_steps = min(base.max_steps, base.num_epochs * base.num_transcripts // BATCH_SIZE)
    written = study.ceiling_kernels * num_eval
    import_s, start_s = IMPORT_S * scale, (IMPORT_S + JUDGE_S) * scale
    stages = [
        Stage("tasks", import_s + scale * TASK_S * num_composed, "tasks.parquet"),
        Stage(
            "base model",
            import_s + scale * TOKENIZER_S + scale * WRITE_S * base.num_transcripts + pace.step_s * num_steps,
            "base_model",
        ),
        Stage("baselines", start_s + scale * BASELINE_S * num_eval, "baselines"),
        Stage("ceiling", 2 * start_s + written * (build_s + device_s), "rollouts/ceiling-level2"),
    ]
    if base.expected_correct_share is not None:
        checked = start_s + (fresh_s + scale * ANSWER_S) * base.num_checked_kernels
        stages.append(Stage("check of the base model", checked, "checks/base_model.json"))
    for run in study.runs:
        if f"{study.results}/policies/{run}" not in {study.policies[p].model for p in study.evaluate}:
            continue
        train = study.for_run(run).train
        sample_s = fresh_s + scale * (ANSWER_S + UPDATE_S * train.num_iterations)
        stages.append(
            Stage(f"training {run}", start_s + sample_s * train.batch_size * train.num_steps, f"policies/{run}")
        )
    for name in study.evaluate:
        num_kernels = num_eval * rollout.num_trajectories * rollout.num_turns
        seconds = start_s + (fresh_s + scale * ANSWER_S) * num_kernels
        stages.append(Stage(f"kernels of {name}", seconds, f"rollouts/{name}-level2"))
    return [*stages, Stage("tables, figures, report", FIGURES_S * scale, "report.html")]


def forecast_text(study: Study, num_cores: int, side_by_side: int = 1) -> str:
    """What `make study` says at its start; stages whose file is there are done. ``side_by_side``: jobs at a time."""
    if study.scale != "laptop":
        return f"Scale {study.scale}: what training will take is printed by kevin plan.\n"
    if study.base_model.init is not None:
        return "How long pretrained weights are at school is told while they are: base_model.pretraining.\n"
    results = Path(study.results)
    if (results / "report.html").exists():
        return ""
    start = time.monotonic()
    pace = measure_pace(study, num_cores)
    stages = forecast(study, pace)
    width = max(len(s.name) for s in stages) + 2
    lines = [f"{s.name:<{width}}{'done' if (results / s.file).exists() else _minutes(s.seconds)}" for s in stages]
    total = sum(s.seconds for s in stages if not (results / s.file).exists())
    beside = ""
    if side_by_side > 1:
        total, beside = total * _TOGETHER, ", two at a time"
    return (
        f"On this machine ({num_cores} cores; measured in {time.monotonic() - start:.0f} s: a training step of the "
        f"base model {pace.step_s:.2g} s, a compilation {pace.compile_s:.2g} s) the study takes about:\n"
        + "".join(f"  {line}\n" for line in lines)
        + f"  {'together':<{width}}{_minutes(total)}{beside}, to about a third; other work makes it longer\n"
    )


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f} min"
