"""No conversation of a pretraining is about a task that is evaluated: KernelBench's own sizes, on the GPU's scale."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from cli_fixtures import ROOT

from kevin.core.config import Study, load_study
from kevin.core.types import Task
from kevin.tasks.build import build_tasks
from kevin.tasks.catalog import catalog, conv, flat, picture, product
from kevin.tasks.kernelbench_ops import kernelbench_rows
from kevin.tasks.ops import call, own_task, render_module, sequence
from kevin.writer import first_turns, later_turns
from kevin.writer.corpus import school_corpus, school_tasks
from kevin.writer.evaluated import Evaluated
from kevin.writer.past_files import draw_past_tasks

SIZES = {
    1: product(4096, 4096, 4096),
    22: flat(4096, 393216),
    23: flat(4096, 393216),
    26: flat(4096, 393216),
    40: picture(16, 64, 256),
    47: {"batch_size": 128, "channels": 4096, "length": 4095},
    63: conv(16, 16, 128, 1024, 1024),
}
"""Of level 1, those of KernelBench."""
FUSED = {1: "1_Conv2D_ReLU_BiasAdd", 12: "12_Gemm_Multiply_LeakyReLU"}
LINE = re.compile(r"^(\w+) of \S+ \(([\d, ]*)\).* -> out \(([\d, ]*)\)$", re.MULTILINE)
"""Of an answer whose task is a single operator: that, with the shapes of what it reads and gives."""

Line = tuple[str, tuple[int, ...], tuple[int, ...]]


def kernelbench(folder: Path) -> Path:
    """A checkout with some of its tasks, from the table of their operators."""
    rows = {row.name: row for row in kernelbench_rows()}
    small = {"batch_size": 2, "in_channels": 3, "height": 8, "width": 8, "out_channels": 4}
    files = {f"level1/{number}_Task": ("level1", number, sizes) for number, sizes in SIZES.items()}
    files[f"level2/{FUSED[1]}"] = ("level2", 1, small)
    files[f"level2/{FUSED[12]}"] = ("level2", 12, {"batch_size": 2, "in_features": 8, "out_features": 4})
    for name, (level, number, sizes) in files.items():
        path = folder / "KernelBench" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(render_module(rows[f"{level}/{number}"].ops, sizes))
    return folder


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    return kernelbench(tmp_path_factory.mktemp("checkout"))


def gpu_study(checkout: Path, seed: int) -> Study:
    """The GPU's scale on few tasks, of which most are held out, and with fewer compositions."""
    study = load_study([ROOT / "config/config.yaml", ROOT / "config/gpu.yaml"])
    source = study.tasks.kernelbench.model_copy(update={"path": str(checkout), "num_train_per_level": 1})
    tasks = study.tasks.model_copy(update={"kernelbench": source, "num_eval_level2": 1})
    pretraining = study.base_model.pretraining.model_copy(update={"num_general": 100, "num_past_tasks": 10})
    base_model = study.base_model.model_copy(update={"pretraining": pretraining})
    return study.model_copy(update={"seed": seed, "tasks": tasks, "base_model": base_model})


def single(task: Task) -> Line:
    number = re.fullmatch(r"kb/1/(\d+)", task.id)
    row = next((row for row in kernelbench_rows() if number and row.name == f"level1/{number[1]}"), None)
    (operator,) = row.ops if row else task.ops
    return operator.name, task.spec.inputs[0].shape, task.spec.outputs[0].shape


def compositions(tasks: list[Task]) -> set[tuple[str, ...]]:
    return {sequence(t.ops) for t in tasks if len(t.ops) > 1}


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_no_evaluated_task_is_in_a_corpus(checkout, seed):
    """The tasks that a corpus is drawn of, those that its later turns go on from, and 160 of its conversations:
    four seconds."""
    study = gpu_study(checkout, seed)
    pairs = build_tasks(study)
    held_out = [task for task, part in pairs if part != "train"]
    evaluated = {single(task) for task in held_out if task.level == 1}
    assert len(evaluated) == len(SIZES) - 1 and ("layer_norm", (16, 64, 256, 256), (16, 64, 256, 256)) in evaluated
    lessons = school_tasks(study)
    past = [task.plain for task in draw_past_tasks(study, lessons).all]
    for tasks in (lessons.tasks, past):
        assert not {single(t) for t in tasks if t.level == 1} & evaluated
        assert not compositions(tasks) & compositions(held_out)
    texts = [a for c in range(10) for t in school_corpus(study, lessons, c) for a in t.exchanges[0].answers]
    alone = [found for text in texts for found in LINE.findall(text)]
    assert 20 < len(alone) < len(texts)
    assert not {(name, *map(_shape, shapes)) for name, *shapes in alone} & evaluated


def _shape(text: str) -> tuple[int, ...]:
    return tuple(int(size) for size in text.split(",") if size)


def test_the_layer_norm_of_the_catalog_is_that_of_the_case_study(checkout):
    """What the filter is for: else it would be taught in KernelBench's own sizes."""
    lessons = school_tasks(gpu_study(checkout, 0))
    left = {task.id for task in catalog("gpu")} - {task.id for task in lessons.tasks}
    assert "l1/layer_norm" in left and len(left) < 5
    assert len([t for t in lessons.tasks if t.ops[0].name == "layer_norm" and t.level == 1]) > 20, "other sizes stay"


LAYER_NORM = own_task("l1/layer_norm", [call("layer_norm", num_dims=3)], picture(16, 64, 256))
SMALL = own_task("l1/layer_norm_1", [call("layer_norm", num_dims=3)], picture(2, 4, 8))


@pytest.mark.parametrize(("tasks", "is_written"), [([], True), ([LAYER_NORM], False)])
def test_sizes_that_are_drawn_do_not_make_an_evaluated_task(monkeypatch, tasks, is_written):
    for module in (first_turns, later_turns):
        monkeypatch.setattr(module, "vary_sizes", lambda task, rng, largest=0: LAYER_NORM)
    monkeypatch.setattr(first_turns, "_OWN_SIZES_SHARE", 0.0)
    (transcript,) = first_turns.first_transcripts([SMALL], "cuda", 1, 0, evaluated=Evaluated(tasks))
    assert ("-> out (16, 64, 256, 256)" in transcript.exchanges[0].answers[0]) == is_written
    assert (later_turns._sized(SMALL, "cuda", random.Random(0), Evaluated(tasks), 2**30) is not None) == is_written


@pytest.mark.parametrize(
    ("ops", "sizes", "is_held"),
    [
        ([call("layer_norm", num_dims=3, eps=1e-3)], picture(16, 64, 256), True),
        ([call("layer_norm", num_dims=3)], picture(16, 64, 128), False),
        ([call("relu")], picture(16, 64, 256), False),
        ([call("layer_norm", num_dims=3), call("relu")], picture(16, 64, 256), False),
        ([call("conv2d"), call("relu"), call("add_param")], conv(2, 3, 4, 8, 8), True),
        ([call("conv1d"), call("relu"), call("add_scalar")], conv(2, 3, 4, 8), True),
    ],
)
def test_what_is_like_an_evaluated_task(ops, sizes, is_held):
    """A single operator at other sizes is not; a composition of KernelBench's is at any."""
    assert Evaluated([LAYER_NORM]).holds(own_task("x", ops, sizes)) == is_held
    assert not Evaluated().holds(LAYER_NORM)
