"""Kernels in general stages: what the writer calls free of mistakes computes what PyTorch computes."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from writer_fixtures import right_cuda_results, right_results, task_of

from kevin.core import abi
from kevin.core.types import Task
from kevin.tasks.drawn import draw
from kevin.tasks.extended import NOT_ALONE
from kevin.tasks.operators import OPERATORS
from kevin.tasks.ops import parse_sequence
from kevin.tasks.render import trace_task
from kevin.writer.general.dims import transposed_size, window_size
from kevin.writer.general.stages import cut
from kevin.writer.plan import Plan, mistakes_of, plan_space, render, sample_plan
from kevin.writer.slots import SENTENCES
from kevin.writer.special import is_special

_PICTURE = {"batch_size": 2, "in_channels": 3, "height": 9, "width": 8, "out_channels": 8}
_VOLUME = {"batch_size": 2, "in_channels": 3, "depth": 5, "height": 6, "width": 7, "out_channels": 4}
_FLAT = {"batch_size": 6, "in_features": 12, "out_features": 40}

SEQUENCES = [
    ("linear | sigmoid | linear out=9 | logsumexp dim=1", _FLAT),
    ("linear | mean_dim keepdim=1 | gelu | add_residual of=0", {**_FLAT, "in_features": 40}),
    ("linear | scale | add_residual of=2 | clamp | mish | mish", _FLAT),
    ("linear | row_norm | add_input | mul_input again=1", _FLAT),
    ("linear | max_pool1d | sum_dim | scale c=0.5", _FLAT),
    ("linear bias=0 | batch_norm track=1 | mul_param ndim=1 axis=-1 | softmax", _FLAT),
    ("conv2d | group_norm groups=4 | tanh | hardswish | add_residual of=1 | logsumexp dim=1 keepdim=1", _PICTURE),
    (
        "conv_transpose2d stride=2 padding=1 output_padding=1 | add_param | add_residual of=1 | mul_residual of=1"
        " | add_residual of=1",
        _PICTURE,
    ),
    (
        "conv_transpose2d | mean_dim dim=2 num_dims=2 keepdim=1 | add_param | logsumexp dim=1 keepdim=1"
        " | sum_dim dim=2 num_dims=2 | scale c=10.0",
        _PICTURE,
    ),
    ("conv3d padding=1 | mul_param | instance_norm | clamp | mul_param again=1 | max_dim dim=1", _VOLUME),
    (
        "conv_transpose3d stride=2 | batch_norm track=1 | mean_dim dim=2 num_dims=3 keepdim=1 | residual_sub of=2",
        _VOLUME,
    ),
    ("avg_pool3d | conv_transpose3d stride=2 padding=1 | spatial_softmax | mul_param", _VOLUME),
    ("conv2d | min_dim dim=1 keepdim=1 | tanh | tanh", _PICTURE),
    (
        "depthwise_conv2d padding=1 | conv2d_pointwise bias=0 | adaptive_avg_pool | square",
        {"batch_size": 2, "channels": 4, "height": 6, "width": 6, "out_channels": 5},
    ),
]


def _singles(seed: int, elements: int = 600) -> list[Task]:
    """One task of every operator for which no specialised writer writes."""
    rng = random.Random(seed)
    tasks = [task_of(*_one(rng, n, elements)) for n in OPERATORS if n not in NOT_ALONE]
    return [t for t in tasks if not is_special(trace_task(t).steps, "cuda")]


def _one(rng: random.Random, name: str, elements: int) -> tuple[list, dict[str, int]]:
    op, sizes = draw(rng, name, elements)
    return [op], sizes


def _composed() -> list[Task]:
    return [task_of(parse_sequence(text), sizes) for text, sizes in SEQUENCES]


def _plan(rng: random.Random, task: Task, language: str) -> Plan:
    """Any plan without mistakes; small blocks, which are emulated fast."""
    plan = sample_plan(rng, task, language).model_copy(update={"mistakes": ()})
    slots = tuple((slot, "64" if slot == "block_size" else value) for slot, value in plan.slots)
    return plan.model_copy(update={"slots": slots})


def _wrong_on_an_emulated_device(pairs: list[tuple[Task, Plan]], folder: Path) -> list[tuple[str, object]]:
    right = right_cuda_results([(t, render(t, p)) for t, p in pairs], folder)
    return [(t.id, p.slots) for (t, p), ok in zip(pairs, right, strict=True) if not ok]


def test_cpp_kernels_are_right(tmp_path):
    rng = random.Random(0)
    pairs = [(t, _plan(rng, t, "cpp")) for t in [*_singles(0), *_composed()]]
    right = right_results([(t, render(t, p)) for t, p in pairs], tmp_path)
    assert [(t.id, p.slots) for (t, p), ok in zip(pairs, right, strict=True) if not ok] == []


@pytest.mark.parametrize("one_in", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_cuda_kernels_are_right_on_an_emulated_device(tmp_path, one_in):
    rng = random.Random(2)
    pairs = [(t, _plan(rng, t, "cuda")) for t in [*_singles(2, 300), *_composed()][::one_in]]
    assert _wrong_on_an_emulated_device(pairs, tmp_path) == []


@pytest.mark.parametrize("language", ["cpp", "cuda"])
def test_every_mistake_changes_the_text_and_every_choice_has_a_sentence(language):
    rng = random.Random(4)
    for task in [*_singles(4), *_composed()]:
        for slot, values in plan_space(task, language).items():
            assert set(values) <= set(SENTENCES[slot])
        plan = _plan(rng, task, language)
        right, mistakes = render(task, plan), mistakes_of(task, plan)
        assert len(mistakes) >= 4
        for mistake in mistakes:
            assert render(task, plan.model_copy(update={"mistakes": (mistake,)})) != right, (task.id, mistake)


def test_wrong_formulas_give_wrong_results(tmp_path):
    pairs = []
    for task in _singles(5):
        plan = Plan(language="cpp", slots=tuple((s, v[0]) for s, v in plan_space(task, "cpp").items()))
        if "wrong_formula" in mistakes_of(task, plan):
            pairs.append((task, plan.model_copy(update={"mistakes": ("wrong_formula",)})))
    right = right_results([(t, render(t, p)) for t, p in pairs], tmp_path)
    assert len(pairs) > 30
    assert [t.id for (t, _), ok in zip(pairs, right, strict=True) if ok] == []


def test_results_that_are_read_again_are_not_overwritten():
    for task in _composed():
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


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_nvcc_takes_the_kernels(tmp_path):
    rng = random.Random(6)
    parts = ["#include <cstdint>", "#include <cuda_runtime.h>"]
    for i, task in enumerate([*_composed(), *_singles(6)][::4]):
        plan = _plan(rng, task, "cuda")
        plan = plan.model_copy(update={"slots": tuple({**dict(plan.slots), "math": "strict"}.items())})
        text = re.sub(r"^#include.*\n", "", abi.header(task.spec, "cuda"), flags=re.M) + render(task, plan)
        parts.append(f"namespace k{i} {{\n{text}}}".replace('extern "C" ', ""))
    (tmp_path / "all.cu").write_text("\n".join(parts))
    command = ["nvcc", "-arch=sm_90", "-O0", "-Xptxas", "-O0", "-std=c++17", "-c", "-o", "all.o", "all.cu"]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[:3000]


_PRODUCTS = [
    ("matmul_transposed | relu", {"inner": 35, "rows": 70, "cols": 133}),
    ("matmul_batched | selu", {"batch_size": 2, "rows": 65, "inner": 20, "cols": 66}),
    ("linear | linear out=9", {"batch_size": 66, "in_features": 19, "out_features": 130}),
    (
        "conv_transpose2d stride=2 padding=1 groups=2 | scale",
        {"batch_size": 2, "in_channels": 8, "height": 9, "width": 8, "out_channels": 132},
    ),
]


@pytest.mark.slow
def test_products_are_right_in_every_way(tmp_path):
    pairs = []
    for text, sizes in _PRODUCTS:
        task = task_of(parse_sequence(text), sizes).model_copy(update={"origin": "composed"})
        space = plan_space(task, "cuda")
        assert space["product"] == ("naive", "tile", "register", "wide", "tensor64", "tensor")
        plain = {slot: values[0] for slot, values in space.items()}
        pairs += [
            (task, Plan(language="cuda", slots=tuple({**plain, "product": way}.items()))) for way in space["product"]
        ]
    assert _wrong_on_an_emulated_device(pairs, tmp_path) == []


_LONG_ROWS = [
    ("batch_norm track=1 | relu | batch_norm track=1", {"batch_size": 3, "channels": 2, "height": 80, "width": 90}),
    ("group_norm groups=2 | mul_param", {"batch_size": 2, "channels": 4, "height": 90, "width": 95}),
    ("matmul | relu", {"rows": 5, "inner": 100, "cols": 1}),
    ("layer_norm | logsumexp dim=1 | exclusive_cumsum", {"batch_size": 3, "channels": 4, "length": 70}),
]


@pytest.mark.slow
def test_rows_are_shared_in_every_way(tmp_path):
    pairs = []
    for text, sizes in _LONG_ROWS:
        task = task_of(parse_sequence(text), sizes).model_copy(update={"origin": "composed"})
        space = plan_space(task, "cuda")
        for owner in space["rows"]:
            slots = {**{slot: values[0] for slot, values in space.items()}, "rows": owner, "block_size": "128"}
            pairs.append((task, Plan(language="cuda", slots=tuple(slots.items()))))
    assert {dict(p.slots)["rows"] for _, p in pairs} == {"thread", "tree", "shuffle", "warp", "split"}
    assert _wrong_on_an_emulated_device(pairs, tmp_path) == []


def test_a_size_after_a_window_is_written_as_pytorch_documents_it():
    """A model that writes it has no sum to do: every number is an option of the module, or stands in the formula."""
    wide = {"kernel": 5, "stride": 2, "padding": 3, "dilation": 4}
    assert window_size("H0", wide, 0) == "(H0 + 2 * 3 - 4 * (5 - 1) - 1) / 2 + 1"
    transposed = transposed_size("L0", {**wide, "output_padding": 1}, 0)
    assert transposed == "(L0 - 1) * 2 - 2 * 3 + 4 * (5 - 1) + 1 + 1"
    same = {"kernel": 3, "padding": 1}
    assert window_size("H0", same, 0) == transposed_size("H0", same, 0) == "H0"
    x = torch.zeros(1, 2, 31)
    pooled = torch.nn.functional.conv1d(x, torch.zeros(2, 2, 5), stride=2, padding=3, dilation=4)
    grown = torch.nn.functional.conv_transpose1d(
        x, torch.zeros(2, 2, 5), stride=2, padding=3, dilation=4, output_padding=1
    )
    written = [eval(text.replace("/", "//"), {"H0": 31, "L0": 31}) for text in (window_size("H0", wide, 0), transposed)]
    assert written == [pooled.shape[2], grown.shape[2]]
