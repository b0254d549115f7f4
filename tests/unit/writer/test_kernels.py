"""Every kernel that the writer calls free of mistakes computes what PyTorch computes."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from writer_fixtures import right_results, small_catalog, small_composed

from kevin.core import abi
from kevin.core.types import Task
from kevin.tasks.catalog import catalog
from kevin.tasks.compose import compose
from kevin.writer.ceiling import ceiling_kernels
from kevin.writer.plan import Plan, mistakes_of, plan_space, render, sample_plan


def _each_value(task: Task, language: str) -> list[Plan]:
    """The plainest plan, and one for every other value of every slot."""
    space = plan_space(task, language)
    plain = {slot: values[0] for slot, values in space.items()}
    plans = [plain, *({**plain, slot: v} for slot, values in space.items() for v in values[1:])]
    plans += [{**p, "math": "fast", "loop": "simd"} for p in plans] if language == "cpp" else []
    return [Plan(language=language, slots=tuple(p.items())) for p in plans]


def _wrong(pairs: list[tuple[Task, Plan]], folder: Path) -> list[tuple[str, dict[str, str]]]:
    right = right_results([(t, render(t, p)) for t, p in pairs], folder)
    return [(t.id, dict(p.slots)) for (t, p), ok in zip(pairs, right, strict=True) if not ok]


def test_one_plan_of_every_operator_is_right(tmp_path):
    rng = random.Random(0)
    pairs = [(t, sample_plan(rng, t, "cpp").model_copy(update={"mistakes": ()})) for t in small_catalog()]
    assert _wrong(pairs, tmp_path) == []


def test_composed_kernels_are_right(tmp_path):
    rng = random.Random(1)
    tasks = small_composed(30)
    pairs = [(t, sample_plan(rng, t, "cpp").model_copy(update={"mistakes": ()})) for t in tasks]
    assert _wrong(pairs, tmp_path) == []


@pytest.mark.slow
def test_every_value_of_every_slot_is_right(tmp_path):
    tasks = [*small_catalog(), *small_composed(60, seed=3)]
    pairs = [(t, p) for t in tasks for p in _each_value(t, "cpp")]
    assert _wrong(pairs, tmp_path) == []


def test_wrong_formulas_give_wrong_results(tmp_path):
    pairs = []
    for task in small_catalog():
        plan = Plan(language="cpp", slots=tuple((s, v[0]) for s, v in plan_space(task, "cpp").items()))
        if "wrong_formula" in mistakes_of(task, plan):
            pairs.append((task, plan.model_copy(update={"mistakes": ("wrong_formula",)})))
    assert len(pairs) > 30
    assert len(_wrong(pairs, tmp_path)) == len(pairs)


def test_ceiling_is_bounded_distinct_and_starts_with_the_likely_best():
    task = catalog("cpu")[0]
    kernels = ceiling_kernels(task, "cpp", 10)
    assert len({k.digest for k in kernels}) == 10
    assert kernels == ceiling_kernels(task, "cpp", 20)[:10]
    assert all("fast-math" in k.source for k in kernels[:3])


def test_ceiling_of_a_foreign_task_is_empty():
    task = catalog("cpu")[0].model_copy(update={"origin": "user"})
    assert ceiling_kernels(task, "cpp", 10) == []


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_cuda_kernels_compile(tmp_path):
    parts = ["#include <cstdint>", "#include <cuda_runtime.h>"]
    tasks = [*catalog("gpu"), *compose(20, 0, "gpu")]
    pairs = [(t, p) for t in tasks for p in _each_value(t, "cuda") if dict(p.slots)["math"] == "strict"]
    for i, (task, plan) in enumerate(pairs):
        assert task.spec is not None
        text = re.sub(r"^#include.*\n", "", abi.header(task.spec, "cuda"), flags=re.M) + render(task, plan)
        text = text.replace('extern "C" ', "")
        parts.append(f"namespace k{i} {{\n{text}}}")
    source = tmp_path / "all.cu"
    source.write_text("\n".join(parts))
    quick = ["-O0", "-Xcicc", "-O0", "-Xptxas", "-O0"]
    done = subprocess.run(
        ["nvcc", "-arch=sm_90", *quick, "-w", "-std=c++17", "-c", "-o", str(tmp_path / "all.o"), str(source)],
        check=False,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[:2000]
