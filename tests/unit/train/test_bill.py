"""The bill: by hand for a small case, the paper's figures within the text's bounds, and what it does not know."""

import re
from pathlib import Path

import pytest

from kevin.core.config import Study, load_study
from kevin.core.errors import ConfigError
from kevin.core.lengths import with_lengths
from kevin.train.bill import SCALES, Architecture, architecture, bill_text, make_bill

CONFIG = Path(__file__).parents[3] / "config"
MODEL = Architecture(
    num_parameters=1e9, num_layers=10, hidden_size=1000, intermediate_size=4000, num_kv_heads=2, head_size=100
)


def study(**train):
    settings = {"num_steps": 10, "tasks_per_step": 2, "num_trajectories": 4, "num_turns": 2, "micro_batch_size": 1}
    return Study.model_validate(
        {
            "policies": {"base": {"model": "x"}},
            "rollout": {"max_prompt_tokens": 1000, "max_response_tokens": 500},
            "train": settings | train,
        }
    )


def test_counts_by_hand():
    given = SCALES["laptop"].model_copy(
        update={"prompt_share": 0.5, "response_share": 0.6, "kernels_per_minute": 150, "utilisation": 0.6}
    )
    bill = make_bill(study(raise_response_at_step=6, raised_response_tokens=1000), MODEL, given)
    assert bill.num_samples == bill.num_kernels == 160
    assert bill.num_gradient_steps == 20
    assert bill.prompt_tokens == pytest.approx(160 * 500)
    assert bill.response_tokens == pytest.approx(16 * 0.6 * (5 * 500 + 5 * 1000))
    assert bill.judge_s == pytest.approx(16 / 150 * 60)
    flop = 8 * 1e9 * (bill.prompt_tokens + bill.response_tokens)
    assert bill.update_s == pytest.approx(flop / 10 / (0.15e12 * 0.6))
    assert bill.state_gb == pytest.approx(20)
    assert bill.peak_gb == pytest.approx(given.harness_gb + bill.state_gb + bill.activation_gb)
    assert bill.device_hours == bill.total_hours


def test_the_laptop_s_bill_is_what_its_run_was_seen_to_take():
    """A step of 64 samples took 28 s on two cores of an EPYC. A cluster is asked for more memory than the bill says."""
    laptop = load_study([CONFIG / "config.yaml"]).for_run("rl_multi")
    bill = make_bill(with_lengths(laptop, "base"), architecture(laptop), SCALES["laptop"])
    step_s = bill.total_hours * 3600 / bill.num_steps * 64 / laptop.train.batch_size
    assert 28 / 1.3 < step_s < 28 * 1.3
    assert 3 < bill.peak_gb < SCALES["laptop"].device_memory_gb
    asked = re.search(r'"laptop": \{.*?"mem_mb": (\d+)', (CONFIG.parent / "rules/common.smk").read_text())
    assert asked and int(asked[1]) == SCALES["laptop"].device_memory_gb * 1000


def test_more_devices_cost_the_same_and_hold_less():
    one = make_bill(study(), MODEL, SCALES["paper"].model_copy(update={"num_devices": 1}))
    four = make_bill(study(), MODEL, SCALES["paper"].model_copy(update={"num_devices": 4}))
    assert four.update_s == pytest.approx(one.update_s / 4)
    assert four.generate_s == pytest.approx(one.generate_s / 4)
    assert four.state_gb == pytest.approx(one.state_gb / 4)


def test_checkpointing_trades_time_for_memory():
    plain, checkpointed = (make_bill(study(gradient_checkpointing=c), MODEL, SCALES["gpu"]) for c in (False, True))
    assert checkpointed.activation_gb < plain.activation_gb / 5
    assert checkpointed.update_s == pytest.approx(plain.update_s * 10 / 8)


def test_the_paper_s_run():
    """Known beside the recipe: 73.7 GB of states a GPU, about 105 GB at the peak, about an hour a step."""
    paper = load_study([CONFIG / "config.yaml", CONFIG / "paper.yaml"]).for_run("rl_multi")
    bill = make_bill(paper, architecture(paper), SCALES["paper"])
    assert bill.num_samples == 40 * 512
    assert bill.num_gradient_steps == 80
    assert bill.state_gb == pytest.approx(73.7, rel=0.01)
    assert 90 < bill.peak_gb < 141
    assert 0.4 < bill.total_hours / 40 < 2
    text = bill_text(paper, "rl_multi")
    assert "GPU-hours" in text and "20,480" in text and "kernels_per_minute" in text


@pytest.mark.parametrize("overlay", ["config", "gpu", "paper"])
def test_every_run_that_ships_has_a_bill(overlay):
    files = [CONFIG / "config.yaml", *([] if overlay == "config" else [CONFIG / f"{overlay}.yaml"])]
    shipped = load_study(files)
    assert shipped.runs
    for name in shipped.runs:
        assert "<<" not in bill_text(shipped.for_run(name), name)


def test_a_model_of_unknown_size():
    with pytest.raises(ConfigError, match=r"policies\.base\.model = 'x'"):
        bill_text(study())


def local(folder):
    base = study().policies["base"].model_copy(update={"model": str(folder)})
    return study().model_copy(update={"policies": {"base": base}})


@pytest.mark.parametrize(
    ("family", "sizes"),
    [
        ("GPT2Config", {"n_embd": 32, "n_layer": 3, "n_head": 4, "vocab_size": 100}),
        ("Qwen2Config", {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 100}),
        ("OPTConfig", {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 100}),
    ],
)
def test_any_family_is_counted_from_its_configuration_alone(tmp_path, family, sizes):
    import transformers

    config = getattr(transformers, family)(**sizes)
    config.save_pretrained(tmp_path)
    found = architecture(local(tmp_path))
    whole = transformers.AutoModelForCausalLM.from_config(config)
    assert (found.num_parameters, found.num_layers, found.hidden_size) == (whole.num_parameters(), 3, 32)
    assert "parameters" in bill_text(local(tmp_path))


@pytest.mark.parametrize("content", ["{", "{}", '{"model_type": "nobody"}', '{"model_type": "vit"}'])
def test_a_folder_of_something_else_is_named(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ConfigError, match=f"no bill for {tmp_path}/config.json"):
        bill_text(local(tmp_path))
