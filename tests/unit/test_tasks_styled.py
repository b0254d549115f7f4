"""A restyled module is the same computation, and its spec is what inspection reads off it."""

from __future__ import annotations

import random

import pytest
import torch
from writer_fixtures import small_catalog, small_composed

from kevin.core.types import Task
from kevin.tasks.format import init_model, inspect_task, load_module, make_inputs, run_model
from kevin.tasks.styled import Styled, restyle

TASKS = [*small_catalog(), *small_composed(20)]


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
            value.copy_(torch.randn_like(value))
            theirs[styled.names[name]].copy_(value)
    inputs = make_inputs(plain, 0)
    (expected,), (found,) = run_model(plain, one, inputs), run_model(shown, other, inputs)
    return expected, found


@pytest.mark.parametrize("held_out", [False, True])
@pytest.mark.parametrize("task", TASKS, ids=lambda t: t.id)
def test_every_operator_keeps_its_meaning_in_every_style(task, held_out):
    rng = random.Random(f"{task.id} {held_out}")
    for _ in range(6):
        styled = restyle(task, rng, held_out=held_out)
        assert inspect_task(styled.shown.source, task.id) == styled.shown.spec, styled.shown.source
        expected, found = _results(task, styled)
        assert torch.allclose(found.float(), expected.float(), rtol=1e-4, atol=1e-5), styled.shown.source
