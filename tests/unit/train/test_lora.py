"""Low-rank adapters: trained, killed and resumed, exported, merged, and refused where they belong to another model."""

import shutil

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from test_grpo import same_as_golden
from test_run_training import killed
from train_fixtures import save_model, train
from transformers import AutoModelForCausalLM

from kevin.core.config import LoraConfig, PolicyConfig, TrainConfig
from kevin.core.errors import DataError, UsageError
from kevin.policy.load import load_policy
from kevin.train import grpo
from kevin.train.checkpoint import export_policy, merge_adapter
from kevin.train.logprobs import answer_logprobs
from kevin.train.lora import inner_model, merged_parameters, with_adapter

pytestmark = pytest.mark.usefixtures("one_thread")

LORA = {"lora": {"rank": 4, "alpha": 8}, "learning_rate": 3e-3, "num_steps": 4}
IDS = torch.tensor([[2, 8, 4, 3, 5, 6, 7], [2, 4, 3, 8, 7, 1, 0]])
MASK = torch.tensor([[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 0]])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Four steps of an adapter, and the folder of what was trained, with the policy that was exported."""
    folder = tmp_path_factory.mktemp("lora")
    records = train(folder, **LORA)
    export_policy(folder / "out", folder / "policy")
    return records, folder


def test_its_losses_are_the_golden_ones(trained):
    records, _ = trained
    assert any(r["grad_norm"] > 0 for r in records)
    same_as_golden("lora", records)


def test_a_resumed_step_is_the_same(trained, tmp_path, monkeypatch):
    killed(monkeypatch, grpo.KernelTrainer, "_compute_loss", lambda call: call == 9, tmp_path, **LORA)
    assert train(tmp_path, **LORA) == trained[0]
    file = "out/checkpoints/checkpoint-8/adapter_model.safetensors"
    one, other = load_file(trained[1] / file), load_file(tmp_path / file)
    assert one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


def test_the_merged_folder_is_the_base_with_its_adapter(trained):
    _, folder = trained
    base = AutoModelForCausalLM.from_pretrained(folder / "base")
    adapted = PeftModel.from_pretrained(base, folder / "policy/adapter", autocast_adapter_dtype=False)
    merged = load_policy("merged", PolicyConfig(model=str(folder / "policy"))).model
    with torch.no_grad():
        plain = AutoModelForCausalLM.from_pretrained(folder / "base")(IDS).logits
        expected = adapted(IDS).logits
        assert not torch.allclose(expected, plain, atol=1e-4), "it has learned something"
        torch.testing.assert_close(merged(IDS).logits, expected, rtol=1e-4, atol=1e-4)
    narrow = load_file(folder / "policy/adapter/adapter_model.safetensors").values()
    assert {value.dtype for value in narrow} == {torch.bfloat16}


def test_what_the_engine_is_given_is_what_is_exported_and_changes_nothing(tmp_path):
    base = AutoModelForCausalLM.from_pretrained(save_model(tmp_path / "base"))
    before = {name: value.clone() for name, value in base.named_parameters()}
    model = with_adapter(base, LoraConfig(rank=4, alpha=8), seed=1)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if ".lora_" in name:
                value.copy_(torch.randn_like(value).bfloat16())
        expected = inner_model(model)(IDS).logits
    given = dict(merged_parameters(model))
    assert given.keys() == before.keys()
    fresh = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    fresh.load_state_dict(given, strict=False)
    torch.testing.assert_close(fresh(IDS).logits, expected, rtol=1e-4, atol=1e-4)
    for name, value in inner_model(model).named_parameters():
        if ".lora_" not in name:
            assert torch.equal(value, before[name.replace(".base_layer.", ".")])


def test_an_adapter_of_another_base_is_refused(trained, tmp_path):
    _, folder = trained
    adapter = folder / "policy/adapter"
    other = save_model(tmp_path / "other", seed=1)
    for base in (other, _wider(tmp_path / "wide", other)):
        with pytest.raises(UsageError, match=r"adapter of another model than .*: it was trained on .*base"):
            merge_adapter(base, adapter, tmp_path / "out")
    with pytest.raises(DataError, match="no adapter that can be read"):
        merge_adapter(folder / "base", folder / "base", tmp_path / "out")
    with pytest.raises(DataError, match="no model in it"):
        merge_adapter(adapter.parent.parent / "results", adapter, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    merge_adapter(folder / "base", adapter, tmp_path / "out")
    one, same = (load_file(f / "model.safetensors") for f in (tmp_path / "out", folder / "policy"))
    assert all(torch.equal(one[k], same[k]) for k in one)


def _wider(folder, model):
    """The same model with every weight twice as wide."""
    shutil.copytree(model, folder)
    tensors = load_file(model / "model.safetensors")
    save_file({k: torch.cat([v, v], dim=-1) for k, v in tensors.items()}, folder / "model.safetensors")
    return folder


def test_a_base_that_has_changed_is_not_merged_into(trained, tmp_path):
    run = shutil.copytree(trained[1] / "out", tmp_path / "run")
    text = (run / "run.json").read_text()
    (run / "run.json").write_text(text.replace(str(trained[1] / "base"), str(save_model(tmp_path / "base", seed=2))))
    with pytest.raises(DataError, match="as it was then, and that is another model now"):
        export_policy(run, tmp_path / "policy")
    assert not (tmp_path / "policy").exists()


@pytest.mark.parametrize("checkpointed", [False, True])
def test_rows_give_the_gradients_of_samples_alone(tmp_path, programs, checkpointed):
    """Compiled layers that hold an adapter, recomputed for the gradient or not."""
    gradients = []
    for in_rows in (False, True):
        base = AutoModelForCausalLM.from_pretrained(save_model(tmp_path / "base"))
        if in_rows:
            grpo.lay_out_in_rows(base)
        model = with_adapter(base, LoraConfig(rank=4, alpha=8), seed=1)
        if in_rows and checkpointed:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            model.enable_input_require_grads()
        model.train()
        logps, _ = answer_logprobs(inner_model(model), IDS, MASK, 4, temperature=0.9, with_entropy=True)
        logps.sum().backward()
        trainable = [p for p in model.parameters() if p.requires_grad]
        gradients.append([p.grad.clone() for p in trainable if p.grad is not None])
        assert len(gradients[-1]) == len(trainable)
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


def test_what_an_adapter_cannot_be():
    with pytest.raises(ValueError, match="lora: of method grpo alone"):
        TrainConfig(lora=LoraConfig(), method="think_prune")
