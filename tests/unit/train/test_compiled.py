"""Compiled layers compute what the layers compute, by one program for all of them."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed
from torch._dynamo.utils import counters
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel

from kevin.core.errors import DeviceError
from kevin.train.school_batches import Sample, summed_loss
from kevin.train.unpadded import compile_layers, compiling, leave_out_padding

NUM_LAYERS = 3


@pytest.fixture
def model() -> PreTrainedModel:
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=24,
        intermediate_size=32,
        num_hidden_layers=NUM_LAYERS,
        num_attention_heads=3,
        num_key_value_heads=1,
        vocab_size=50,
        attn_implementation="sdpa",
    )
    made: PreTrainedModel = AutoModelForCausalLM.from_config(config)
    return made.train()


def samples(num: int, length: int) -> list[Sample]:
    generator = torch.Generator().manual_seed(num)
    return [Sample(torch.randint(1, 50, (length - i,), generator=generator).tolist(), length // 2) for i in range(num)]


def loss_and_gradient(model: PreTrainedModel, batch: list[Sample]) -> tuple[float, torch.Tensor]:
    model.zero_grad()
    loss = summed_loss(model, batch, pad=0)
    loss.backward()
    return loss.item(), torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread", "programs")
@pytest.mark.parametrize("in_rows", [False, True])
def test_losses_and_gradients_stay_the_same_with_one_program_for_all_layers(
    model: PreTrainedModel, in_rows: bool
) -> None:
    """With Inductor some twenty seconds, for C++."""
    batches = [samples(3, 20), samples(2, 33), samples(4, 11)]
    if in_rows:
        assert leave_out_padding(model)
        batches += [samples(1, 27), samples(2, 16), samples(1, 9)]
    plain = [loss_and_gradient(model, batch) for batch in batches]
    names = list(model.state_dict())
    counters.clear()

    assert compile_layers(model) == NUM_LAYERS
    for (loss, gradient), batch in zip(plain, batches, strict=True):
        compiled_loss, compiled_gradient = loss_and_gradient(model, batch)
        assert compiled_loss == pytest.approx(loss, rel=1e-5)
        torch.testing.assert_close(compiled_gradient, gradient, rtol=1e-4, atol=1e-5)
        if in_rows:
            with torch.no_grad():
                without = summed_loss(model, batch, pad=0)
            assert without.item() == pytest.approx(loss, rel=1e-5) and not without.requires_grad
    assert counters["stats"]["unique_graphs"] == 1
    assert list(model.state_dict()) == names


def test_a_model_without_a_list_of_blocks_stays_as_it_is(model: PreTrainedModel) -> None:
    model.base_model.layers = torch.nn.Module()

    assert compile_layers(model) == 0


def test_a_failure_to_compile_names_what_turns_it_off() -> None:
    with pytest.raises(DeviceError, match=r"no C compiler; .* set TORCH_COMPILE_DISABLE=1"), compiling():
        raise BackendCompilerFailed(compiling, RuntimeError("no C compiler"), None)
