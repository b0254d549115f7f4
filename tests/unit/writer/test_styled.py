"""A restyled module is the same computation, and its spec is what inspection reads off it."""

from __future__ import annotations

import io
import os
import random
import re
import tokenize
from pathlib import Path

import pytest
import torch
from writer_fixtures import general_composed, general_drawn, small_composed, task_of

from kevin.core.errors import TaskError
from kevin.core.types import Task
from kevin.tasks.catalog import NOT_ALONE, catalog
from kevin.tasks.catalog import draw as draw_operator
from kevin.tasks.compose import compose
from kevin.tasks.format import init_model, inspect_task, load_module, make_inputs, run_model
from kevin.tasks.operators import OPERATORS
from kevin.tasks.ops import call, sizes_of
from kevin.writer.modules.prose import PHRASES, akin
from kevin.writer.modules.sizes import vary_sizes
from kevin.writer.modules.spellings import spellings
from kevin.writer.modules.styled import Styled, restyle
from kevin.writer.modules.styles import HELD_OUT, SHOWN, draw

pytestmark = pytest.mark.usefixtures("one_thread")

IMAGE = {"batch_size": 2, "in_channels": 3, "height": 5, "width": 6, "out_channels": 4}
SEQUENCES = [*general_composed(), *small_composed(8)]


def _init_of(source: str) -> tuple[set[str], str]:
    """Arguments of ``__init__`` and its body."""
    found = re.search(r"def __init__\(self(.*)\):\n((?: {8}.*\n|\n)*)", source)
    return (set(re.findall(r"(\w+)(?=[,:=)]|$)", found[1])), found[2]) if found else (set(), "")


def test_a_pools_arguments_may_say_whose_they_are_where_the_convolutions_do_not() -> None:
    task = task_of([call("max_pool2d"), call("conv2d"), call("tanh")], {**IMAGE, "height": 12, "width": 12})
    sources = [restyle(task, random.Random(seed)).shown.source for seed in range(200)]
    assert any(re.search(r"MaxPool2d\(pool_kernel_size", s) and "Conv2d(" in s for s in sources)
    assert any(re.search(r"MaxPool2d\(kernel_size\b", s) for s in sources)


def test_an_option_of_a_window_may_stand_unused() -> None:
    task = task_of([call("conv2d"), call("tanh")], IMAGE)
    unused = []
    for seed in range(200):
        styled = restyle(task, random.Random(seed)).shown
        arguments, body = _init_of(styled.source)
        if any(name in arguments and not re.search(rf"\b{name}\b", body) for name in ("groups", "dilation")):
            unused.append(styled)
    assert len(unused) > 3
    for styled in unused[:3]:
        assert inspect_task(styled.source, styled.id) == styled.spec, styled.source


def test_a_constructor_may_take_a_constant_that_it_never_uses_called_like_what_is_learned() -> None:
    task, found = task_of([call("conv2d"), call("mul_param"), call("tanh")], IMAGE), []
    for seed in range(200):
        styled = restyle(task, random.Random(seed)).shown
        if match := re.search(r"self\.(\w+) = nn\.Parameter\(", styled.source):
            signature = re.search(r"def __init__\((.*)\):", styled.source)
            if signature and re.search(rf"\b{match[1]}\b", signature[1]):
                found.append(styled)
    assert 5 < len(found) < 60
    for styled in found[:6]:
        assert inspect_task(styled.source, styled.id) == styled.spec, styled.source


def test_a_product_over_more_dimensions_may_be_written_in_letters() -> None:
    """Each letter a dimension, in as many ways as there are ranks."""
    for rank, shape in ((3, (2, 3, 4)), (4, (2, 3, 2, 4))):
        x, second = torch.randn(shape), torch.randn(4, 5)
        written = [s.expression for s in spellings("matmul_shared", "torch.matmul({x}, {second})", rank)]
        letters = [text for text in written if re.search(rf"einsum\(.\w{{{rank}}},", text)]
        assert len(letters) == 3
        for text in letters:
            found = eval(text.format(x="x", second="second"), {"torch": torch, "x": x, "second": second})
            assert torch.allclose(found, x @ second, atol=1e-6)


def _alone(name: str, rng: random.Random) -> Task:
    op, sizes = draw_operator(rng, name, 600)
    return task_of([op], sizes)


def _spec_names(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    named = [*model.named_parameters(), *((n, b) for n, b in model.named_buffers() if b.is_floating_point())]
    return {n.replace(".", "_"): p for n, p in named}


def _results(task: Task, styled: Styled) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the plain module and the restyled one, under the same parameters and inputs."""
    plain, shown = load_module(task.source, task.id), load_module(styled.shown.source, task.id)
    one, other = init_model(plain, 0), init_model(shown, 0)
    theirs = _spec_names(other)
    with torch.no_grad():
        for name, value in _spec_names(one).items():
            value.copy_(torch.rand_like(value) + 0.5)
            theirs[styled.names[name]].copy_(value)
    inputs = make_inputs(plain, 0)
    (expected,), (found,) = run_model(plain, one, inputs), run_model(shown, other, inputs)
    return expected, found


def _assert_same(task: Task, rng: random.Random, held_out: bool) -> None:
    styled = restyle(task, rng, held_out=held_out)
    assert inspect_task(styled.shown.source, task.id) == styled.shown.spec, styled.shown.source
    expected, found = _results(task, styled)
    assert torch.allclose(found.float(), expected.float(), rtol=1e-4, atol=1e-5), styled.shown.source


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in OPERATORS if n not in NOT_ALONE])
def test_every_operator_keeps_its_meaning_in_every_style(name):
    rng = random.Random(name)
    for held_out in (False, False, False, True):
        _assert_same(_alone(name, rng), rng, held_out)


@pytest.mark.parametrize("task", SEQUENCES, ids=lambda t: t.id)
def test_sequences_keep_their_meaning_in_every_style(task):
    rng = random.Random(task.id)
    for held_out in (False, False, False, True, True):
        _assert_same(task, rng, held_out)


def test_every_spelling_of_the_table_is_for_an_operator_and_most_have_several():
    ways = {name: spellings(name, op.expression, max(op.ranks)) for name, op in OPERATORS.items()}
    assert all(w[0].expression == OPERATORS[n].expression for n, w in ways.items())
    assert sum(len(w) > 1 for w in ways.values()) > len(ways) / 2


def test_the_same_seed_gives_the_same_text():
    task = SEQUENCES[1]
    texts = [[restyle(task, random.Random(seed)).shown.source for seed in range(30)] for _ in range(2)]
    assert texts[0] == texts[1] and len(set(texts[0])) == 30


def test_held_out_ways_are_drawn_on_request_only():
    rng = random.Random(0)
    assert all(not (HELD_OUT[axis].keys() & SHOWN[axis].keys()) for axis in HELD_OUT)
    for _ in range(2000):
        style = draw(rng, held_out=False)
        assert all(getattr(style, axis) in SHOWN[axis] for axis in SHOWN)
    seen = set()
    for _ in range(500):
        style = draw(rng, held_out=True)
        new = {(axis, way) for axis, ways in HELD_OUT.items() for way in ways if getattr(style, axis) == way}
        assert new
        seen |= new
    assert seen == {(axis, way) for axis, ways in HELD_OUT.items() for way in ways}


def test_held_out_marks_stand_in_no_text_of_the_school():
    rng = random.Random(0)
    marks = r":param |-------|nn\.Sequential|import Tensor|BATCH_SIZE|inputs\.append|# =====|self\.layer1\b"
    held_out = 0
    for _ in range(300):
        task = rng.choice(SEQUENCES)
        assert not re.search(marks, restyle(task, rng).shown.source)
        held_out += bool(re.search(marks, restyle(task, rng, held_out=True).shown.source))
    assert held_out > 250


def test_a_restyled_task_is_no_longer_one_whose_sizes_are_read_off_its_text():
    shown = restyle(SEQUENCES[0], random.Random(0)).shown
    assert shown.origin == "user" and shown.ops == SEQUENCES[0].ops
    with pytest.raises(TaskError):
        restyle(shown.model_copy(update={"ops": ()}), random.Random(0))


def test_sizes_vary_within_bounds_and_the_spec_follows():
    rng = random.Random(0)
    tasks = [*catalog("gpu"), *compose(20, 0, "gpu")]
    shapes, ranks, same = set(), set(), 0
    for task in tasks * 3:
        varied = vary_sizes(task, rng)
        assert [op.name for op in varied.ops] == [op.name for op in task.ops]
        assert (
            max(s.num_elements for s in (*varied.spec.inputs, *varied.spec.parameters, *varied.spec.outputs)) <= 2**29
        )
        same += varied.source == task.source
        shapes.add(varied.spec.inputs[0].shape)
        ranks.add(len(varied.spec.inputs[0].shape) - len(task.spec.inputs[0].shape))
    assert same < 20 and len(shapes) > 100 and len(ranks) > 2
    for task in rng.sample(tasks, 30):
        varied = vary_sizes(task, rng, largest=4000)
        assert sizes_of(varied.source) and inspect_task(varied.source, task.id) == varied.spec


def test_sizes_of_general_compositions_vary_whatever_stands_before_what_needs_a_size():
    """An elementwise operator may change the rank, but not where a product or a convolution follows."""
    rng = random.Random(0)
    tasks = general_drawn()[:200]
    assert sum(OPERATORS[t.ops[0].name].constructor is None and "out_" in t.source for t in tasks) > 5
    for task in tasks * 3:
        assert [op.name for op in vary_sizes(task, rng).ops] == [op.name for op in task.ops]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "may_have"),
    [
        ("avg_pool1d", {"padding"}),
        ("max_pool3d", {"padding", "dilation"}),
        ("conv2d", {"padding", "dilation", "groups"}),
        ("conv_transpose2d", {"padding", "dilation", "groups", "output_padding"}),
        ("depthwise_conv2d", {"padding", "dilation"}),
        ("relu", set()),
    ],
)
def test_windows_come_with_everything_that_pytorch_lets_them_have(name, may_have):
    rng = random.Random(0)
    task = _alone(name, rng)
    plainly = {"dilation": 1, "groups": 1}
    had = set()
    for _ in range(150):
        varied = vary_sizes(task, rng, largest=100_000)
        attrs = varied.ops[0].attrs
        had |= {k for k, v in attrs.items() if k in (*may_have, *plainly) and v > plainly.get(k, 0)}
        assert inspect_task(varied.source, task.id) == varied.spec
    assert had == may_have


# --- what prose says ----------------------------------------------------------------------------------------


def test_operators_are_akin_that_share_a_word_or_else_a_kind():
    assert "matmul" in akin("matmul_transposed_a") and "linear" not in akin("matmul_transposed_a")
    assert akin("new_gelu") == ("gelu",)
    assert set(akin("mse_loss")) > {"hinge_loss", "smooth_l1_loss"}
    assert "tanh" in akin("sigmoid") and "max_dim" not in akin("sigmoid")
    assert "mul_param" in akin("scale") and "scale" in akin("mul_param")
    for name in OPERATORS:
        assert akin(name) and name not in akin(name)


def test_prose_has_words_for_every_operator_and_never_the_inventorys_compound_names():
    assert PHRASES.keys() >= OPERATORS.keys()
    for name in OPERATORS:
        if name.endswith(("_shared", "_dim", "_param", "_transposed", "_a", "_b", "_input", "_scalar")):
            assert name.replace("_", " ") not in PHRASES[name]


def test_docstrings_call_some_operators_by_the_name_of_another():
    """The module's code is the same; what its prose says of it is now and then vague, or wrong."""
    task = task_of([call("matmul_transposed_a")], {"rows": 8, "inner": 4, "cols": 6})
    own = set(PHRASES["matmul_transposed_a"])
    others = {p for n in akin("matmul_transposed_a") for p in PHRASES[n]} - own
    rng, told, loose = random.Random(0), 0, 0
    for _ in range(400):
        text = restyle(task, rng).shown.source.lower()
        mine, theirs = ([p for p in some if p.lower() in text] for some in (own, others))
        told += bool(mine or theirs)
        loose += bool(theirs and not any(p in m for p in theirs for m in mine))
    assert 0.1 < loose / told < 0.35


# --- nothing of KernelBench's prose ---------------------------------------------------------------------------


def _sentences(source: str) -> set[str]:
    """Sentences and lines of docstrings and comments, of at least four words."""
    texts: list[str] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            texts.append(token.string.lstrip("# "))
        elif token.type == tokenize.STRING and token.string.startswith('"""'):
            texts += token.string.strip('"').splitlines()
    parts = [part for t in texts for part in (t, t.partition(": ")[2], *re.split(r"(?<=\.)\s+", t))]
    parts += [part for t in texts for part in re.split(r"(?<=\.)\s+", t.partition(": ")[2])]
    plain = {part.strip().rstrip(".").lower() for part in parts}
    return {p for p in plain if sum(bool(re.search("[a-z]{2}", word)) for word in p.split()) >= 4}


@pytest.mark.skipif("KEVIN_KERNELBENCH" not in os.environ, reason="KEVIN_KERNELBENCH names no checkout")
def test_no_sentence_is_kernelbenchs():
    files = sorted((Path(os.environ["KEVIN_KERNELBENCH"]) / "KernelBench").glob("level*/*.py"))
    assert len(files) >= 200
    theirs = set().union(*(_sentences(f.read_text()) for f in files))
    rng = random.Random(0)
    tasks = [*catalog("gpu"), *compose(60, 0, "gpu"), *(_alone(n, rng) for n in OPERATORS if n not in NOT_ALONE)]
    for number in range(2000):
        source = restyle(rng.choice(tasks), rng, held_out=number % 4 == 0).shown.source
        assert not _sentences(source) & theirs
