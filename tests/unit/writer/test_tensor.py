"""Products on tensor cores: right at every edge, as exact as float32, and small enough to be written and to run."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from writer_fixtures import cuda_results, right_results, task_of_text, with_functions_for_asm, wrong

from kevin.core import abi
from kevin.core.types import Task
from kevin.judge.compile.native import resources_used
from kevin.tasks.catalog import catalog
from kevin.writer.first_turns import first_transcripts
from kevin.writer.kernels.tensor import TILES
from kevin.writer.later_turns import read_plan
from kevin.writer.plan import Plan, mistakes_of, plan_space, render
from kevin.writer.slots import SENTENCES

_ODD = [
    ("matmul | relu", {"rows": 40, "inner": 1030, "cols": 66}),
    ("matmul_transposed_a", {"inner": 36, "rows": 20, "cols": 66}),
    ("matmul_transposed_b", {"rows": 34, "inner": 20, "cols": 67}),
    ("linear | gelu | mul_param", {"batch_size": 17, "in_features": 19, "out_features": 130}),
    ("conv2d_pointwise", {"batch_size": 2, "in_channels": 20, "height": 8, "width": 10, "out_channels": 34}),
    (
        "conv2d stride=2 padding=1 dilation=2 groups=2 | relu",
        {"batch_size": 2, "in_channels": 4, "height": 21, "width": 20, "out_channels": 34},
    ),
    (
        "conv_transpose2d stride=2 padding=1 output_padding=1 | scale | add_param",
        {"batch_size": 2, "in_channels": 8, "height": 9, "width": 8, "out_channels": 20},
    ),
    ("linear | softmax | linear out=70", {"batch_size": 20, "in_features": 24, "out_features": 64}),
]
"""In small tiles, which are emulated fast."""

_MORE = [
    ("matmul_transposed | relu", {"inner": 36, "rows": 72, "cols": 132}),
    ("matmul_lower_triangular", {"rows": 70, "inner": 70}),
    ("attention", {"batch_size": 1, "heads": 2, "length": 70, "dim": 64}),
    ("conv1d stride=3 dilation=4 | scale", {"batch_size": 2, "in_channels": 6, "length": 400, "out_channels": 20}),
    (
        "conv3d padding=1 | mish",
        {"batch_size": 1, "in_channels": 2, "depth": 4, "height": 5, "width": 6, "out_channels": 20},
    ),
    ("conv_transpose1d kernel=5 stride=3", {"batch_size": 2, "in_channels": 8, "length": 100, "out_channels": 20}),
    ("conv_transpose1d", {"batch_size": 2, "in_channels": 8, "length": 100, "out_channels": 20}),
    (
        "conv_transpose2d stride=2 padding=1 groups=2 | scale",
        {"batch_size": 2, "in_channels": 8, "height": 9, "width": 8, "out_channels": 80},
    ),
    (
        "conv_transpose2d kernel_0=3 kernel_1=5 stride_0=2 stride_1=3 padding_0=1 padding_1=2",
        {"batch_size": 1, "in_channels": 4, "height": 15, "width": 20, "out_channels": 16},
    ),
    (
        "conv_transpose2d kernel=2 stride=5",
        {"batch_size": 1, "in_channels": 16, "height": 9, "width": 8, "out_channels": 16},
    ),
    (
        "conv_transpose2d stride=2 dilation=2 padding=1",
        {"batch_size": 1, "in_channels": 4, "height": 9, "width": 8, "out_channels": 16},
    ),
    (
        "conv_transpose3d kernel=4 stride=2 padding=1",
        {"batch_size": 1, "in_channels": 2, "depth": 4, "height": 5, "width": 6, "out_channels": 20},
    ),
]


def _plans(task: Task, **chosen: str) -> list[Plan]:
    """A plan for each way on tensor cores; all other slots plain, or as chosen."""
    space = plan_space(task, "cuda")
    plain = {slot: values[0] for slot, values in space.items()} | {k: v for k, v in chosen.items() if k in space}
    ways = [way for way in space["product"] if way in TILES]
    return [Plan(language="cuda", slots=tuple({**plain, "product": way}.items())) for way in ways]


def _wrong_and_ways(cases: list[tuple[str, dict[str, int]]], folder: Path) -> tuple[list[object], set[str]]:
    tasks = [task_of_text(text, sizes) for text, sizes in cases]
    pairs = [(t, p) for t in tasks for p in {*_plans(t, fusion="store"), *_plans(t, fusion="pass")}]
    return wrong(pairs, folder), {dict(p.slots)["product"] for _, p in pairs}


@pytest.mark.slow
def test_they_are_right_at_every_edge(tmp_path):
    assert _wrong_and_ways(_ODD, tmp_path) == ([], {"tensor32", "tensor64", "tensor_split"})


@pytest.mark.slow
def test_other_ranks_phases_and_the_large_tile_are_right(tmp_path):
    found, ways = _wrong_and_ways(_MORE, tmp_path)
    assert found == [] and "tensor" in ways


@pytest.mark.slow
@pytest.mark.parametrize("inner", [64, 1024])
def test_they_are_as_exact_as_float32(inner, tmp_path):
    """Against float64; a sum in float32 one after the other, as the kernel with tiles of 16 adds up, is the measure."""
    task = task_of_text("matmul", {"rows": 16, "inner": inner, "cols": 64})
    (plan,) = _plans(task)
    rough = plan.model_copy(update={"mistake": "wrong_formula"})
    tiled = plan.model_copy(update={"slots": tuple({**dict(plan.slots), "product": "tile"}.items())})
    pairs = [(task, render(task, p)) for p in (plan, tiled, rough)]
    assert "low = 0;" in pairs[2][1]
    errors = [
        float((out.double() - expected).square().mean().sqrt())
        for out, expected in cuda_results(pairs, tmp_path, torch.float64)
    ]
    assert 0 < errors[0] <= 2 * errors[1]
    assert errors[2] > 10 * errors[1], "TF32 alone is not float32"


def test_their_mistakes_are_mistakes(tmp_path):
    task = task_of_text("linear | relu", {"batch_size": 40, "in_features": 33, "out_features": 140})
    plan = next(p for p in _plans(task, fusion="store") if dict(p.slots)["product"] == "tensor64")
    found = [m for m in mistakes_of(task, plan) if m not in ("undeclared_name", "missing_semicolon", "wrong_type")]
    assert {"wrong_formula", "missing_barrier", "missing_bounds", "off_by_one", "wrong_axis"} <= set(found)
    seen = ("wrong_formula", "missing_barrier", "off_by_one", "wrong_axis", "op_left_out")
    pairs = [(task, render(task, plan.model_copy(update={"mistake": m}))) for m in seen]
    assert dict(zip(seen, right_results(pairs, tmp_path, "cuda"), strict=True)) == dict.fromkeys(seen, False)


def test_asm_becomes_calls_with_the_operands_in_order():
    text = 'asm volatile("a.b [%1], {%0, %2};" : "+f"(c[0]) : "l"(x ? y : 1), "n"(N));\nasm("cp.wait;" ::: "memory");\n'
    assert with_functions_for_asm(text) == "ptx::a_b((x ? y : 1), (c[0]), (N));\nptx::cp_wait();\n"


def test_only_large_products_use_them_and_only_in_cuda():
    sizes = {"batch_size": 64, "in_channels": 16, "height": 32, "width": 32, "out_channels": 64}
    task = task_of_text("conv2d | relu", sizes)
    small = task_of_text("conv2d | relu", {**sizes, "out_channels": 8})
    assert TILES.keys() & set(plan_space(task, "cuda")["product"])
    assert not TILES.keys() & set(plan_space(small, "cuda")["product"])
    assert not any("tensor" in way for values in plan_space(task, "cpp").values() for way in values)


def test_the_decision_is_said_and_read_back():
    tasks = {t.id: t for t in catalog("gpu") if any(w in TILES for w in plan_space(t, "cuda").get("product", ()))}
    said = {SENTENCES["product"][way]: way for way in TILES}
    seen = set()
    for transcript in first_transcripts(list(tasks.values()), "cuda", 40, 0):
        (answer,) = transcript.exchanges[0].answers
        for text in said.keys() & set(answer.splitlines()):
            plan = read_plan(tasks[transcript.task_id], "cuda", answer)
            if said[text] in plan_space(tasks[transcript.task_id], "cuda")["product"]:
                assert plan is not None and dict(plan.slots)["product"] == said[text]
                seen.add(said[text])
    assert "tensor" in seen


def _large() -> list[Task]:
    picture = {"batch_size": 16, "in_channels": 64, "height": 128, "width": 128, "out_channels": 128}
    volume = {"batch_size": 16, "in_channels": 32, "depth": 16, "height": 32, "width": 32, "out_channels": 32}
    return [
        task_of_text("matmul", {"rows": 4096, "inner": 4096, "cols": 4096}),
        task_of_text("matmul_transposed", {"inner": 4096, "rows": 2048, "cols": 4096}),
        task_of_text("linear | relu", {"batch_size": 1024, "in_features": 8192, "out_features": 8192}),
        task_of_text("matmul | relu", {"rows": 256, "inner": 131072, "cols": 256}),
        task_of_text("conv2d | relu | add_param", picture),
        task_of_text("conv2d_pointwise", picture),
        task_of_text("conv3d padding=1 stride=2 | mish", volume),
        task_of_text("conv_transpose3d stride=2 padding=1 output_padding=1 groups=2", volume),
    ]


def test_a_kernel_fits_into_an_answer():
    """Of 2,048 tokens at some three characters each, with room for what is said before it."""
    lengths = {t.id: len(render(t, p)) for t in _large() for p in _plans(t, fusion="store")}
    assert max(lengths.values()) < 5500, lengths


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_no_register_is_spilled(tmp_path):
    for i, (task, plan) in enumerate((t, p) for t in _large() for p in _plans(t, fusion="store")):
        source = tmp_path / f"k{i}.cu"
        source.write_text(abi.header(task.spec, "cuda") + render(task, plan))
        command = ["nvcc", "-arch=sm_90", "-O3", "-std=c++17", "-Xptxas", "-v", "-diag-suppress=177", "-cubin"]
        command += ["-o", str(source.with_suffix(".cubin")), str(source)]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr[:2000]
        used = resources_used(done.stderr)
        product = dict(plan.slots)["product"]
        assert used["spilled_bytes"] == 0, (task.id, product, used)
        assert used["registers"] * 128 * TILES[product].blocks <= 65536
        assert used["shared_bytes"] <= 48 << 10
        assert re.search(r"__launch_bounds__\(128, \d\)", source.read_text())
