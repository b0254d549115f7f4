"""A synthetic study for the tests of the report: invented numbers, real file formats."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from core_fixtures import make_turn as any_turn

from kevin.core.config import PolicyConfig, Study
from kevin.core.dialogue import feedback, parse_completion
from kevin.core.files import write_parquet, write_tasks, write_turns
from kevin.core.types import OpCall, Outcome, Task, TaskSpec, TensorSpec, Turn
from kevin.report.catalogue import OF_SCORES, SPLITS, make_figure, make_table
from kevin.report.html import make_report

LEVEL1 = ("layer_norm", "matmul", "softmax", "cumsum", "max_pool2d", "gelu", "conv2d", "mse_loss")
LEVEL2 = ("linear_relu_scale", "conv2d_gelu_sum", "matmul_softmax", "linear_bias_add_clamp_tanh", "conv1d_mish_mean")
LABELS = ("base model", "multi-turn RL", "single-turn RL", "Think-Prune-Train", "TRLOO", "speedup cap 3")
FAILURES = (Outcome.INCORRECT, Outcome.COMPILE_ERROR, Outcome.RUNTIME_ERROR, Outcome.PARSE_ERROR, Outcome.REFUSED)
CHANGES = ("plain loops in the order of the reference", "OpenMP over the outer loop", "one pass over each row",
           "tiles of 64 that stay in the cache", "vectorised inner loop, restrict pointers")  # fmt: skip


def make_study(num_policies: int = 2, **report: int) -> Study:
    names = [f"p{i}" for i in range(num_policies)]
    policies = {n: PolicyConfig(model=n, label=label) for n, label in zip(names, LABELS, strict=False)}
    return Study(policies=policies, evaluate=tuple(names), report={"num_bootstrap": 200, **report})


def trained_study(num_seeds: int = 2, *, single: bool = True, **changes: Any) -> Study:
    """``base``; ``multi`` and further seeds of it, trained over two turns from it; ``single``, trained over one."""
    runs: dict[str, dict[str, Any]] = {"multi": {}} | {f"multi_{i}": {} for i in range(1, num_seeds)}
    runs |= {"single": {"train": {"num_turns": 1, "num_trajectories": 16}}} if single else {}
    policies: dict[str, dict[str, Any]] = {"base": {"model": "base", "label": "base model"}}
    for run in runs:
        seed_of = "multi" if run.startswith("multi_") else None
        policies[run] = {"model": f"<results>/policies/{run}", "label": run, "seed_of": seed_of}
    return Study.model_validate(
        {"policies": policies, "evaluate": list(policies), "runs": runs, "report": {"num_bootstrap": 200}} | changes
    )


GOLDEN = Path(__file__).parent / "report/golden"
"""A folder as `kevin publish` writes it, of answers by `make_turns`: of 13 tasks, by the policies of `golden_study` and
the ceiling, and under two strategies. One policy has fewer trajectories than the others, two kernels have no verdict,
one task is flawed."""


def golden_study(**changes: Any) -> Study:
    """Two seeds of multi-turn RL, single-turn RL and the base model."""
    strategies = {"parallel": {"rollout": {"num_turns": 1}}, "serial": {}}
    report = {"num_bootstrap": 200, "primary": {"trajectories": 2, "turns": 3}}
    search = {"strategies": strategies, "compared": list(strategies)}
    return trained_study(2, search=search, report=report, **changes)


def scored(
    policy: str, outcomes: Mapping[str, Sequence[Sequence[float | None]]], *, split: str = "level1", flawed: str = ""
) -> pd.DataFrame:
    """Scores of a policy: by task its trajectories, each the speedups of its turns (None: wrong, NaN: no verdict)."""
    rows = []
    for task, trajectories in outcomes.items():
        for number, turns in enumerate(trajectories):
            for turn, speedup in enumerate(turns, start=1):
                outcome = "incorrect" if speedup is None else None if np.isnan(speedup) else "correct"
                row = {"policy": policy, "split": split, "task_id": task, "level": 1, "flawed": task == flawed}
                place = {"trajectory": number, "turn": turn, "outcome": outcome, "speedup": speedup}
                rows.append(row | place | {"similarity": np.nan, "score": 0.0 if speedup is None else speedup})
    return pd.DataFrame(rows).astype({"speedup": "float64", "score": "float64"})


def make_task(name: str, level: int, flaws: tuple[str, ...] = ()) -> Task:
    x = TensorSpec(name="x", shape=(64, 256), dtype="float32")
    source = (
        "import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n    def forward(self, x):\n"
        f"        return {name}(x)\n\n\ndef get_inputs():\n    return [torch.randn(64, 256)]\n\n\n"
        "def get_init_inputs():\n    return []\n"
    )
    return Task(
        id=f"l{level}/{name}",
        level=level,
        name=name,
        source=source,
        ops=(OpCall(name=name.split("_", maxsplit=1)[0]),),
        origin="catalog" if level == 1 else "composed",
        flaws=flaws,
        spec=TaskSpec(inputs=(x,), outputs=(x.model_copy(update={"name": "out"}),)),
    )


def make_tasks() -> list[tuple[Task, str]]:
    tasks = [(make_task(n, 1, ("zeros_pass",) if n == "mse_loss" else ()), "level1") for n in LEVEL1]
    return tasks + [(make_task(n, 2), "level2") for n in LEVEL2]


def make_turn(
    task_id: str, trajectory: int, turn: int, outcome: Outcome | None, speedup: float | None = None, *, text: str = ""
) -> Turn:
    """A turn as the rollout loop would record it, with a plausible completion unless ``text`` is given."""
    change = CHANGES[(turn - 1 + trajectory) % len(CHANGES)]
    if not text:
        body = "  for (int64_t i = 0; i < out_size; i++) {\n    out[i] = x[i];\n  }\n" * turn
        code = f'// {change}\nextern "C" void launch(const float* x, float* out) {{\n{body}}}\n'
        fence = "" if outcome is Outcome.PARSE_ERROR else f"```cpp\n{code}```\nSummary: {change}\n"
        text = f"<think>\nOkay, {change} should help here.\n</think>\n{fence}"
    parsed = parse_completion(text, "c_abi", "cpp")
    message = "kernel.cpp:3:7: error: 'y' was not declared in this scope" if outcome is Outcome.COMPILE_ERROR else "no"
    said = {"completion": text, "kernel": parsed.kernel, "summary": parsed.summary}
    found = {"outcome": outcome, "speedup": speedup}
    found["feedback"] = feedback(outcome, message, speedup) if outcome is not None else ""
    tokens = {"num_prompt_tokens": 400 * turn, "num_completion_tokens": 150}
    return any_turn(task_id=task_id, trajectory=trajectory, turn=turn, **said, **found, **tokens)


def make_turns(tasks: list[Task], skill: float, seed: int, num_trajectories: int = 4, num_turns: int = 4) -> list[Turn]:
    """Trajectories that get better with the turns; ``skill`` in 0..1 sets how good."""
    rng = np.random.default_rng(seed)
    turns = []
    for task in tasks:
        ease = rng.uniform(-0.2, 0.2)
        for trajectory in range(num_trajectories):
            for turn in range(1, num_turns + 1):
                if rng.random() < skill + ease + 0.06 * turn:
                    speedup = float(np.exp(rng.normal(-1 + skill * turn * 0.6, 0.5)))
                    turns.append(make_turn(task.id, trajectory, turn, Outcome.CORRECT, speedup))
                else:
                    turns.append(
                        make_turn(task.id, trajectory, turn, FAILURES[rng.choice(5, p=[0.4, 0.25, 0.15, 0.15, 0.05])])
                    )
    return turns


def write_study(root: Path, study: Study, num_trajectories: int = 4, num_turns: int = 4) -> dict[str, list[Path]]:
    """Every input of the report under ``root``: keys ``tasks``, ``turns``, ``baselines``."""
    tasks = make_tasks()
    write_tasks(root / "tasks.parquet", tasks, {"commit": "abc"})
    files: dict[str, list[Path]] = {"tasks": [root / "tasks.parquet"], "turns": [], "baselines": [root / "cpu.parquet"]}
    for split in ("level1", "level2"):
        own = [t for t, s in tasks if s == split]
        for i, policy in enumerate((*study.evaluate, "ceiling")):
            path = root / "rollouts" / f"{policy}-{split}" / "turns.parquet"
            best = policy == "ceiling"
            skill = 1.0 if best else 0.25 + 0.12 * i
            turns = make_turns(own, skill, i, 12 if best else num_trajectories, 1 if best else num_turns)
            write_turns(path, turns, {"commit": "abc", "cpu": "A CPU", "gpus": [], "versions": {"torch": "2.13.0"}})
            files["turns"].append(path)
    rng = np.random.default_rng(9)
    rows = []
    for task, _ in tasks:
        eager, ratio = float(rng.uniform(800, 6000)), float(rng.uniform(0.9, 2.5))
        for name, r in (("eager", 1.0), ("compile", ratio)):
            row = {"task_id": task.id, "task_digest": task.digest, "baseline": name, "median_us": eager / r}
            rows.append({**row, "iqr_us": 5.0, "num_samples": 40, "ratio_to_eager": r, "device_name": "A CPU"})
    write_parquet(root / "cpu.parquet", pd.DataFrame(rows), "baselines", {"commit": "abc"})
    return files


def write_scores(root: Path, study: Study, files: dict[str, list[Path]]) -> list[Path]:
    from kevin.report.scores import score_rollouts

    made = []
    for path in files["turns"]:
        policy, split = path.parent.name.rsplit("-", 1)
        out = root / "scores" / f"{policy}-{split}.parquet"
        made.append(score_rollouts(path, files["tasks"][0], out, study=study, policy=policy, split=split))
    return made


def write_report(root: Path, study: Study, files: dict[str, list[Path]]) -> Path:
    scores = write_scores(root, study, files)
    splits = {p.stem.rsplit("-", 1)[1] for p in scores}
    names = [name for name in OF_SCORES if name in splits or name not in SPLITS]
    baselines = files.get("baselines", [None])[0]
    tables = [make_table(n, root / f"{n}.csv", study=study, scores=scores, baselines=baselines) for n in names]
    figures = [make_figure("outcomes", root, study=study, scores=scores)[0]]
    return make_report(
        root / "report.html",
        study=study,
        tables=tables,
        figures=figures,
        scores=scores,
        turns=files["turns"],
        tasks=files["tasks"][0],
        baselines=baselines,
    )


class Page(HTMLParser):
    """Elements and attributes of the page, and the text of each script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._inside = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")
            self._inside = True

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "script"

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts[-1] += data

    def viewer(self) -> dict:
        return json.loads(self.scripts[0])


HOSTILE = (
    "</script><script>document.title='pwned'</script><!--<script>"
    "<img src=x onerror=alert(1)>{{ 7 * 7 }}\u2028' \" & </textarea></style>"
)


def hostile_study(root: Path) -> tuple[Study, dict[str, list[Path]]]:
    label = "<b>$x</b><script>alert(1)</script>"
    study = Study(policies={"p0": {"model": "m", "label": label}}, evaluate=("p0",), report={"num_bootstrap": 100})
    task = make_task("layer_norm", 1)
    text = f"<think>{HOSTILE}</think>\n```cpp\n// {HOSTILE.replace(chr(0x2028), '')}\n```\nSummary: {HOSTILE}"
    good = make_turn(task.id, 0, 1, Outcome.CORRECT, 1.5, text=text)
    bad = make_turn(task.id, 0, 2, Outcome.PARSE_ERROR, text=HOSTILE).model_copy(update={"feedback": HOSTILE})
    write_tasks(root / "tasks.parquet", [(task, "level1")], {"commit": HOSTILE})
    turns = root / "p0-level1" / "turns.parquet"
    write_turns(turns, [good, bad], {"cpu": HOSTILE})
    return study, {"tasks": [root / "tasks.parquet"], "turns": [turns]}
