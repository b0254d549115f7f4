"""A study of invented numbers at any size: what tables and page cost is measured on it, nothing else is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import yaml

from kevin.core.config import Study
from kevin.core.files import write_parquet, write_tasks, write_text
from kevin.core.progress import progress
from kevin.core.types import Task

SPLITS = ("level1", "level2")
_OUTCOMES = ("incorrect", "compile_error", "runtime_error", "parse_error")


class Synthetic(NamedTuple):
    """Where everything that tables and page are made of was written, or, ``scores``, is to be written."""

    config: Path
    tasks: Path
    baselines: Path
    scores: list[Path]
    turns: list[Path]
    pairs: list[tuple[str, str]]
    """Policy and split of each of these files."""


def synthetic_study(results: Path, num_policies: int, num_trajectories: int, num_turns: int) -> Study:
    """``base``, then seeds of a policy trained over turns and of one trained over single turns, in equal numbers."""
    runs: dict[str, dict[str, object]] = {}
    policies: dict[str, dict[str, object]] = {"base": {"model": "base", "label": "base model"}}
    for i in range(num_policies - 1):
        kind = ("multi", "single")[i % 2]
        name = kind if i < 2 else f"{kind}_{i // 2}"
        runs[name] = {} if kind == "multi" else {"train": {"num_turns": 1, "num_trajectories": 16}}
        seed_of = None if i < 2 else kind
        policies[name] = {"model": f"{results}/policies/{name}", "label": f"{kind}-turn RL", "seed_of": seed_of}
    rollout = {"num_trajectories": num_trajectories, "num_turns": num_turns}
    tree = {"results": str(results), "policies": policies, "evaluate": list(policies), "runs": runs, "rollout": rollout}
    return Study.model_validate(tree)


def write_synthetic(
    out: Path, *, num_tasks: int, num_trajectories: int, num_turns: int, num_policies: int, chars: int, seed: int = 0
) -> Synthetic:
    """Write configuration, tasks, baselines and turns below ``out``; the turns are not scored yet.

    Args:
        num_tasks: over both splits; every policy answers each of them ``num_trajectories`` x ``num_turns`` times.
        chars: of an answer, a third of them its kernel's.
    """
    study = synthetic_study(out, num_policies, num_trajectories, num_turns)
    config = out / "config.yaml"
    write_text(config, yaml.safe_dump(study.model_dump(mode="json"), sort_keys=False))
    rng = np.random.default_rng(seed)
    tasks = [(_task(i), SPLITS[i * len(SPLITS) // num_tasks]) for i in range(num_tasks)]
    write_tasks(out / "tasks.parquet", tasks, {})
    _write_baselines(out / "baselines" / "cpu.parquet", [task for task, _ in tasks], rng)
    pairs = [(policy, split) for policy in study.evaluate for split in SPLITS]
    made = Synthetic(config, out / "tasks.parquet", out / "baselines" / "cpu.parquet", [], [], pairs)
    with progress(len(pairs), "synthetic turns", "files") as bar:
        for policy, split in pairs:
            ids = [task.id for task, own in tasks if own == split]
            frame = _answers(ids, num_trajectories, num_turns, rng)
            made.scores.append(out / "scores" / f"{policy}-{split}.parquet")
            made.turns.append(out / "rollouts" / f"{policy}-{split}" / "turns.parquet")
            _write_turns(made.turns[-1], frame, chars)
            bar.update()
    return made


def _task(i: int) -> Task:
    source = f"import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x + {i}\n"
    flaws = ("zeros_pass",) if i % 25 == 3 else ()
    level = 1 + i % 2
    return Task(id=f"synthetic/{i:04d}", level=level, name=f"task_{i}", source=source, origin="catalog", flaws=flaws)


def _write_baselines(path: Path, tasks: Sequence[Task], rng: np.random.Generator) -> None:
    rows = []
    for task in tasks:
        eager, ratio = rng.uniform(100, 5000), rng.uniform(0.8, 2)
        for name, r in (("eager", 1.0), ("compile", ratio)):
            row = {"task_id": task.id, "task_digest": task.digest, "baseline": name, "median_us": eager / r}
            rows.append(row | {"ratio_to_eager": r})
    write_parquet(path, pd.DataFrame(rows), "baselines", {})


def _answers(ids: Sequence[str], num_trajectories: int, num_turns: int, rng: np.random.Generator) -> pd.DataFrame:
    """A row a turn, in order: place, outcome and speedup."""
    index = pd.MultiIndex.from_product(
        [ids, range(num_trajectories), range(1, num_turns + 1)], names=["task_id", "trajectory", "turn"]
    )
    frame = index.to_frame(index=False)
    ease = dict(zip(ids, rng.uniform(0.1, 0.6, len(ids)), strict=True))
    correct = rng.random(len(frame)) < frame["task_id"].map(ease) + 0.02 * frame["turn"]
    frame["outcome"] = np.where(correct, "correct", rng.choice(_OUTCOMES, len(frame)))
    frame.loc[rng.random(len(frame)) < 0.001, "outcome"] = None
    frame["speedup"] = np.where(frame["outcome"] == "correct", np.exp(rng.normal(-0.3, 0.7, len(frame))), np.nan)
    return frame


def _write_turns(path: Path, answers: pd.DataFrame, chars: int) -> None:
    lines = [f"    out[i + {i}] = x[i + {i}] + {i}.0f;  // one element\n" for i in range(max(1, chars // 3 // 50))]
    rng = np.random.default_rng(len(answers))
    orders = rng.integers(0, len(lines), size=(len(answers), len(lines)))
    kernels = [f"// answer {i}\n" + "".join(lines[j] for j in order) for i, order in enumerate(orders)]
    thought = "<think>\nOkay, " + "think about memory. " * max(1, chars * 2 // 3 // 20) + "\n</think>\n"
    frame = answers.assign(
        completion=[f"{thought}```cpp\n{kernel}```\n" for kernel in kernels],
        summary="another block size",
        reason=None,
        feedback="Your kernel was judged.",
        verdict_key=None,
        num_prompt_tokens=2000,
        num_completion_tokens=1000,
        finish_reason="stop",
        kernel_dialect="c_abi",
        kernel_language="cpp",
        kernel_source=kernels,
    )
    write_parquet(path, frame, "turns", {"cpu": "a synthetic machine"})
