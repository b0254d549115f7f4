"""Log-probabilities of answers: the same in parts as in one piece, with the same gradient."""

from __future__ import annotations

import pytest
import torch
from model_fixtures import random_model

from kevin.train import logprobs
from kevin.train.logprobs import answer_logprobs
from kevin.train.unpadded import compile_layers, leave_out_padding

VOCABULARY = 50


@pytest.fixture
def model():
    sizes = {"hidden_size": 16, "intermediate_size": 32, "max_position_embeddings": 64}
    return random_model(vocab_size=VOCABULARY, **sizes).double()


def _found(model, **options):
    """Values, entropies and gradients for three prompts of unequal length with answers of unequal length."""
    ids = torch.randint(VOCABULARY, (3, 12), generator=torch.Generator().manual_seed(1))
    ids[:, 2:5] = ids[0, 2:5]  # a common beginning
    mask = torch.ones_like(ids)
    mask[1, 0] = mask[2, 10:] = 0
    model.zero_grad()
    logps, entropy = answer_logprobs(model, ids, mask, 6, temperature=0.9, **options)
    (logps * torch.arange(logps.numel()).view_as(logps)).sum().backward()
    return logps.detach(), entropy, [p.grad.clone() for p in model.parameters()]


def test_in_parts_they_are_what_they_are_in_one_piece(model, monkeypatch):
    whole, entropy, gradients = _found(model, with_entropy=True)
    heads: list[int] = []
    model.lm_head.register_forward_hook(lambda module, inputs, output: heads.append(output.shape[0]))
    monkeypatch.setattr(logprobs, "_PART_ELEMENTS", 4 * VOCABULARY)
    parts, entropy_of_parts, gradients_of_parts = _found(model, with_entropy=True)
    assert max(heads) == 4 and sum(heads) == 2 * 16  # 16 answer tokens, for the values and again for the gradient
    torch.testing.assert_close(parts, whole)
    torch.testing.assert_close(entropy_of_parts, entropy)
    torch.testing.assert_close(gradients_of_parts, gradients)


def test_without_a_gradient_nothing_is_computed_twice(model):
    heads: list[int] = []
    model.lm_head.register_forward_hook(lambda module, inputs, output: heads.append(output.shape[0]))
    ids = torch.randint(VOCABULARY, (2, 8), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        logps, entropy = answer_logprobs(model, ids, torch.ones_like(ids), 3, temperature=1.0, with_entropy=False)
    assert sum(heads) == 6 and entropy is None and logps.shape == (2, 3)


def test_in_a_row_without_padding_they_are_the_same(model):
    same_in_rows(model, compiled=False)


@pytest.mark.usefixtures("one_thread", "programs")
def test_in_a_row_compiled_layers_give_the_same(model):
    """With and without a gradient they are programs of their own; with Inductor some ten seconds, for C++."""
    same_in_rows(model, compiled=True)


def same_in_rows(model, *, compiled):
    """Values, entropies and gradients."""
    model.float()  # compiled layers of torch 2.11 mix types in double precision
    expected = _found(model, with_entropy=True)
    calls: list[int] = []
    assert leave_out_padding(model)
    model.base_model.register_forward_hook(lambda *_: calls.append(1))
    if compiled:
        compile_layers(model)

    found = _found(model, with_entropy=True)
    assert len(calls) == 1  # one row, where a common beginning is a pass of its own
    for own, other in zip(found, expected, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-5)
    ids = torch.randint(VOCABULARY, (2, 8), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        logps, _ = answer_logprobs(model, ids, torch.ones_like(ids), 3, temperature=1.0, with_entropy=False)
    assert logps.shape == (2, 3) and not logps.requires_grad
