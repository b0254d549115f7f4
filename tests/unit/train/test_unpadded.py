"""Samples in a row without padding: the same losses and gradients, for any model whose attention can be replaced."""

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config

from kevin.train import unpadded
from kevin.train.school_batches import Sample, cut, summed_loss
from kevin.train.unpadded import ATTENTION, hidden_states, leave_out_padding, make_row

SIZES = {
    "hidden_size": 24,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "vocab_size": 50,
    "attn_implementation": "sdpa",
}
SAMPLES = [Sample([3, 1, 4, 1, 5, 9, 2, 6], 3), Sample([5, 3, 5], 2), Sample([8, 9, 7, 9, 3], 1)]


def make(config):
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config).train()


def loss_and_gradient(model, samples):
    model.zero_grad()
    loss = summed_loss(model, samples, pad=0)
    loss.backward()
    return loss.item(), torch.cat([p.grad.flatten() for p in model.parameters()])


@pytest.mark.parametrize("family", [LlamaConfig, Qwen2Config])
def test_losses_and_gradients_are_those_of_padded_samples(family):
    """Of layers that are compiled, `test_compiled.py`."""
    model = make(family(**SIZES))
    expected = [loss_and_gradient(model, samples) for samples in (SAMPLES, SAMPLES[:2], SAMPLES[1:])]

    assert leave_out_padding(model) and model.training
    for (loss, gradient), samples in zip(expected, (SAMPLES, SAMPLES[:2], SAMPLES[1:]), strict=True):
        own_loss, own_gradient = loss_and_gradient(model, samples)
        assert own_loss == pytest.approx(loss, rel=1e-5)
        torch.testing.assert_close(own_gradient, gradient, rtol=1e-4, atol=1e-6)


def test_a_model_with_another_attention_is_left_as_it_is(caplog):
    """Windows of two tokens, which rows would not respect."""
    model = make(MistralConfig(**SIZES, sliding_window=2))
    before = loss_and_gradient(model, SAMPLES)[0]

    with caplog.at_level("INFO"):
        assert not leave_out_padding(model)

    assert "samples are padded" in caplog.text
    assert model.config._attn_implementation == "sdpa" != ATTENTION
    assert loss_and_gradient(model, SAMPLES)[0] == before


def test_compiled_layers_keep_nothing_for_a_gradient_that_nobody_wants(monkeypatch):
    """They are called with gradients all the same."""
    model = make(Qwen2Config(**SIZES))
    assert leave_out_padding(model)
    monkeypatch.setattr(unpadded, "has_compiled_layers", lambda model: True)
    row = make_row([s.tokens for s in SAMPLES], torch.device("cpu"))
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(1), lambda x: x):
        with torch.no_grad():
            states = hidden_states(model, row)
        assert not kept and not states.requires_grad
        torch.testing.assert_close(states, hidden_states(model, row).detach())
    assert kept


def test_a_row_holds_each_token_once_at_its_own_position():
    row = make_row([s.tokens for s in SAMPLES], torch.device("cpu"))

    assert row.tokens_1T.tolist() == [[t for s in SAMPLES for t in s.tokens]]
    assert row.positions_1T.tolist() == [[*range(8), *range(3), *range(5)]]
    assert row.places_T.tolist() == [*range(8), *range(8, 11), *range(16, 21)]
    assert (row.num_samples, row.longest) == (3, 8)


@pytest.mark.parametrize(("length", "width"), [(8, 8), (9, 16)])
def test_a_sample_is_as_wide_as_memory_is_aligned(length, width):
    """Attention compiled for aligned lengths is compiled again for others."""
    row = make_row([[1] * length, [1, 2]], torch.device("cpu"))

    assert row.longest == width
    assert row.places_T.tolist() == [*range(length), width, width + 1]


def test_micro_batches_of_rows_hold_as_many_tokens_as_they_may():
    samples = [Sample([0] * n, 1) for n in (60, 30, 30, 20, 10)]

    assert [[len(s.tokens) for s in part] for part in cut(samples, 100, padded=False)] == [[60, 30], [30, 20, 10]]
    assert [[len(s.tokens) for s in part] for part in cut(samples, 100)] == [[60], [30, 30, 20], [10]]
