"""Every kernel that the writer calls free of mistakes computes what PyTorch computes."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from collections.abc import Callable

import pytest
import torch
from writer_fixtures import (
    general_composed,
    general_singles,
    small_catalog,
    small_composed,
    small_tasks,
    task_of_text,
    wrong,
)

from kevin.core import abi
from kevin.core.types import Task
from kevin.tasks.catalog import catalog
from kevin.tasks.compose import compose
from kevin.tasks.ops import trace_task
from kevin.writer.ceiling import ceiling_kernels
from kevin.writer.kernels.dims import transposed_size, window_size
from kevin.writer.kernels.stages import cut
from kevin.writer.plan import Plan, mistakes_of, plan_space, render, sample_plan
from kevin.writer.slots import SENTENCES


def _sample(rng: random.Random, task: Task, language: str) -> Plan:
    """Any plan without mistakes; small blocks, which are emulated fast."""
    plan = sample_plan(rng, task, language).model_copy(update={"mistake": None})
    slots = tuple((slot, "64" if slot == "block_size" else value) for slot, value in plan.slots)
    return plan.model_copy(update={"slots": slots})


def _plainest(task: Task, language: str, **chosen: str) -> Plan:
    plain = {slot: values[0] for slot, values in plan_space(task, language).items()}
    return Plan(language=language, slots=tuple({**plain, **chosen}.items()))


def _each_value(task: Task, language: str) -> list[Plan]:
    """The plainest plan, and one for every other value of every slot."""
    choices = [{}, *({slot: v} for slot, values in plan_space(task, language).items() for v in values[1:])]
    if language == "cpp":
        choices += [{**chosen, "math": "fast", "loop": "simd"} for chosen in choices]
    return [_plainest(task, language, **chosen) for chosen in choices]


# --- they are right -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tasks",
    [small_catalog, lambda: small_composed(30), lambda: [*general_singles(0), *general_composed()]],
    ids=["catalog", "composed", "general"],
)
def test_one_plan_of_every_task_is_right(tmp_path, tasks: Callable[[], list[Task]]):
    rng = random.Random(0)
    assert wrong([(t, _sample(rng, t, "cpp")) for t in tasks()], tmp_path) == []


@pytest.mark.parametrize("one_in", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_cuda_kernels_are_right_on_an_emulated_device(tmp_path, one_in):
    rng = random.Random(2)
    tasks = [*general_singles(2, 300), *general_composed()][::one_in]
    assert wrong([(t, _sample(rng, t, "cuda")) for t in tasks], tmp_path) == []


def test_every_order_of_loops_is_right(tmp_path):
    tasks = [*small_catalog(), *general_composed()]
    spaces = [plan_space(task, "cpp").get("order", ()) for task in tasks]
    assert {order for space in spaces for order in space} == SENTENCES["order"].keys()
    pairs = [
        (task, _plainest(task, "cpp", loop="simd", order=order, **_fused(task)))
        for task, space in zip(tasks, spaces, strict=True)
        for order in space[1:]
    ]
    assert wrong(pairs, tmp_path) == []


def _fused(task: Task) -> dict[str, str]:
    return {"fusion": "store"} if "fusion" in plan_space(task, "cpp") else {}


@pytest.mark.slow
def test_every_value_of_every_slot_is_right(tmp_path):
    tasks = [*small_catalog(), *small_composed(60, seed=3)]
    assert wrong([(t, p) for t in tasks for p in _each_value(t, "cpp")], tmp_path) == []


_PRODUCTS = [
    ("matmul_transposed | relu", {"inner": 35, "rows": 70, "cols": 133}),
    ("matmul_batched | selu", {"batch_size": 2, "rows": 65, "inner": 20, "cols": 66}),
    ("linear | linear out=9", {"batch_size": 66, "in_features": 19, "out_features": 130}),
    (
        "conv_transpose2d stride=2 padding=1 groups=2 | scale",
        {"batch_size": 2, "in_channels": 8, "height": 9, "width": 8, "out_channels": 132},
    ),
]
_LONG_ROWS = [
    ("batch_norm track=1 | relu | batch_norm track=1", {"batch_size": 3, "channels": 2, "height": 80, "width": 90}),
    ("group_norm groups=2 | mul_param", {"batch_size": 2, "channels": 4, "height": 90, "width": 95}),
    ("matmul | relu", {"rows": 5, "inner": 100, "cols": 1}),
    ("layer_norm | logsumexp dim=1 | exclusive_cumsum", {"batch_size": 3, "channels": 4, "length": 70}),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cases", "slot", "ways", "chosen"),
    [
        (_PRODUCTS, "product", {"naive", "tile", "register", "wide", "tensor64", "tensor"}, {}),
        (_LONG_ROWS, "rows", {"thread", "tree", "shuffle", "warp", "split"}, {"block_size": "128"}),
    ],
    ids=["products", "rows"],
)
def test_they_are_right_in_every_way(tmp_path, cases, slot, ways, chosen):
    tasks = [task_of_text(text, sizes) for text, sizes in cases]
    spaces = [plan_space(task, "cuda")[slot] for task in tasks]
    assert {way for space in spaces for way in space} == ways
    pairs = [
        (task, _plainest(task, "cuda", **chosen, **{slot: way}))
        for task, space in zip(tasks, spaces, strict=True)
        for way in space
    ]
    assert wrong(pairs, tmp_path) == []


# --- and those with a mistake are not -------------------------------------------------------------------------------


@pytest.mark.parametrize("tasks", [small_catalog, lambda: general_singles(5)], ids=["catalog", "general"])
def test_wrong_formulas_give_wrong_results(tmp_path, tasks: Callable[[], list[Task]]):
    plain = [(task, _plainest(task, "cpp")) for task in tasks()]
    pairs = [
        (task, plan.model_copy(update={"mistake": "wrong_formula"}))
        for task, plan in plain
        if "wrong_formula" in mistakes_of(task, plan)
    ]
    assert len(pairs) > 30
    assert len(wrong(pairs, tmp_path)) == len(pairs)


@pytest.mark.parametrize("language", ["cpp", "cuda"])
def test_every_mistake_changes_the_text_and_every_choice_has_a_sentence(language):
    rng = random.Random(4)
    for task in [*small_tasks(), *general_singles(4), *general_composed()]:
        for slot, values in plan_space(task, language).items():
            assert set(values) <= set(SENTENCES[slot])
        plan = _sample(rng, task, language)
        right, mistakes = render(task, plan), mistakes_of(task, plan)
        assert len(mistakes) >= 4
        for mistake in mistakes:
            assert render(task, plan.model_copy(update={"mistake": mistake})) != right, (task.id, mistake)
    sentences = [text for values in SENTENCES.values() for text in values.values()]
    assert len(set(sentences)) == len(sentences), "of its own"


# --- nvcc takes them ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("kind", ["every value", "any shape"])
def test_nvcc_takes_the_kernels(tmp_path, kind):
    if kind == "every value":
        tasks = [*catalog("gpu"), *compose(20, 0, "gpu")]
        pairs = [(t, p) for t in tasks for p in _each_value(t, "cuda") if dict(p.slots)["math"] == "strict"]
    else:
        rng = random.Random(6)
        plans = [(t, _sample(rng, t, "cuda")) for t in [*general_composed(), *general_singles(6)][::4]]
        strict = [tuple({**dict(plan.slots), "math": "strict"}.items()) for _, plan in plans]
        pairs = [(t, p.model_copy(update={"slots": s})) for (t, p), s in zip(plans, strict, strict=True)]
    parts = ["#include <cstdint>", "#include <cuda_runtime.h>"]
    for i, (task, plan) in enumerate(pairs):
        assert task.spec is not None
        text = re.sub(r"^#include.*\n", "", abi.header(task.spec, "cuda"), flags=re.M) + render(task, plan)
        parts.append(f"namespace k{i} {{\n{text}}}".replace('extern "C" ', ""))
    (tmp_path / "all.cu").write_text("\n".join(parts))
    quick = ["-O0", "-Xcicc", "-O0", "-Xptxas", "-O0"]
    command = ["nvcc", "-arch=sm_90", *quick, "-w", "-std=c++17", "-c", "-o", "all.o", "all.cu"]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[:3000]


# --- parts ----------------------------------------------------------------------------------------------------------


def test_ceiling_is_bounded_distinct_and_starts_with_the_likely_best():
    task = catalog("cpu")[0]
    kernels = ceiling_kernels(task, "cpp", 10)
    assert len({k.digest for k in kernels}) == 10
    assert kernels == ceiling_kernels(task, "cpp", 20)[:10]
    assert all("fast-math" in k.source for k in kernels[:3])
    assert ceiling_kernels(task.model_copy(update={"origin": "user"}), "cpp", 10) == [], "of a foreign task none"


def test_results_that_are_read_again_are_not_overwritten():
    for task in general_composed():
        steps = trace_task(task).steps
        for fused in (True, False):
            holds = {0: "x"}
            at = 0
            for stage in cut(steps, fused=fused).stages:
                for number, buffer, _ in stage.others:
                    assert holds[number] == buffer
                at += len(stage.steps)
                holds = {n: b for n, b in holds.items() if b != stage.target} | {at: stage.target}
            assert holds[len(steps)] == "out"


def test_a_size_after_a_window_is_written_as_pytorch_documents_it_without_what_is_nothing():
    """A model that writes it has no sum to do: every number is an option of the module, or stands in the formula."""
    assert window_size("L0", {"kernel": 3}, 0) == "L0 - 3 + 1"
    assert window_size("L0", {"kernel": 2, "stride": 2}, 0) == "(L0 - 2) / 2 + 1"
    assert transposed_size("L0", {"kernel": 2, "stride": 2}, 0) == "(L0 - 1) * 2 + 2"
    wide = {"kernel": 5, "stride": 2, "padding": 3, "dilation": 4}
    assert window_size("H0", wide, 0) == "(H0 + 2 * 3 - 4 * (5 - 1) - 1) / 2 + 1"
    transposed = transposed_size("L0", {**wide, "output_padding": 1}, 0)
    assert transposed == "(L0 - 1) * 2 - 2 * 3 + 4 * (5 - 1) + 1 + 1"
    same = {"kernel": 3, "padding": 1}
    assert window_size("H0", same, 0) == transposed_size("H0", same, 0) == "H0"
    x = torch.zeros(1, 2, 31)
    options = {"stride": 2, "padding": 3, "dilation": 4}
    pooled = torch.nn.functional.conv1d(x, torch.zeros(2, 2, 5), **options)
    grown = torch.nn.functional.conv_transpose1d(x, torch.zeros(2, 2, 5), output_padding=1, **options)
    written = [eval(text.replace("/", "//"), {"H0": 31, "L0": 31}) for text in (window_size("H0", wide, 0), transposed)]
    assert written == [pooled.shape[2], grown.shape[2]]
