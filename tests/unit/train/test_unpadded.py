"""Samples in a row without padding, and compiled layers: the same losses and gradients."""

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed
from torch._dynamo.utils import counters
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config

from kevin.core.errors import DeviceError
from kevin.train import unpadded
from kevin.train.school_batches import Sample, cut, summed_loss
from kevin.train.unpadded import (
    ATTENTION,
    compile_layers,
    compiling,
    hidden_states,
    leave_out_padding,
    make_row,
)

SIZES = {
    "hidden_size": 24,
    "intermediate_size": 32,
    "num_hidden_layers": 3,
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
    loss = summed_loss(model, samples)
    loss.backward()
    return loss.item(), torch.cat([p.grad.flatten() for p in model.parameters()])


@pytest.mark.parametrize("family", [LlamaConfig, Qwen2Config])
def test_losses_and_gradients_are_those_of_padded_samples(family):
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


@pytest.mark.parametrize(("length", "width"), [(8, 8), (9, 16)])
def test_a_sample_is_as_wide_as_memory_is_aligned(length, width):
    """Attention compiled for aligned lengths is compiled again for others."""
    row = make_row([[1] * length, [1, 2]], torch.device("cpu"))

    assert row.longest == width
    assert row.places_T.tolist() == [*range(length), width, width + 1]


def test_micro_batches_of_rows_hold_as_many_tokens_as_they_may():
    samples = [Sample([0] * n, 1) for n in (30, 60, 900, 20, 30, 10)]

    rows = [[len(s.tokens) for s in part] for part in cut(samples, 100, padded=False)]
    assert rows == [[900], [60, 30], [30, 20, 10]], "one that is too long for any stands alone"
    assert [[len(s.tokens) for s in part] for part in cut(samples, 100)] == [[900], [60], [30, 30, 20], [10]]


def samples(num: int, length: int) -> list[Sample]:
    generator = torch.Generator().manual_seed(num)
    return [Sample(torch.randint(1, 50, (length - i,), generator=generator).tolist(), length // 2) for i in range(num)]


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread", "programs")
@pytest.mark.parametrize("in_rows", [False, True])
def test_losses_and_gradients_stay_the_same_with_one_program_for_all_layers(
    in_rows: bool,
) -> None:
    """With Inductor some twenty seconds, for C++."""
    model = make(LlamaConfig(**SIZES))
    batches = [samples(3, 20), samples(2, 33), samples(4, 11)]
    if in_rows:
        assert leave_out_padding(model)
        batches += [samples(1, 27), samples(2, 16), samples(1, 9)]
    plain = [loss_and_gradient(model, batch) for batch in batches]
    names = list(model.state_dict())
    counters.clear()

    assert compile_layers(model) == SIZES["num_hidden_layers"]
    for (loss, gradient), batch in zip(plain, batches, strict=True):
        compiled_loss, compiled_gradient = loss_and_gradient(model, batch)
        assert compiled_loss == pytest.approx(loss, rel=1e-5)
        torch.testing.assert_close(compiled_gradient, gradient, rtol=1e-4, atol=1e-5)
        if in_rows:
            with torch.no_grad():
                without = summed_loss(model, batch)
            assert without.item() == pytest.approx(loss, rel=1e-5) and not without.requires_grad
    assert counters["stats"]["unique_graphs"] == 1
    assert list(model.state_dict()) == names


def test_a_model_without_a_list_of_blocks_stays_as_it_is() -> None:
    model = make(LlamaConfig(**SIZES))
    model.base_model.layers = torch.nn.Module()

    assert compile_layers(model) == 0


def test_a_failure_to_compile_names_what_turns_it_off() -> None:
    with pytest.raises(DeviceError, match=r"no C compiler; .* set TORCH_COMPILE_DISABLE=1"), compiling():
        raise BackendCompilerFailed(compiling, RuntimeError("no C compiler"), None)
