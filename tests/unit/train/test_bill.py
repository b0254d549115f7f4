"""The bill: by hand for a small case, the paper's figures within the text's bounds, and what it does not know."""

import csv
import json
import re
from pathlib import Path

import pytest

from kevin.core.config import Study, load_study
from kevin.core.errors import ConfigError
from kevin.core.lengths import longest_response, with_lengths
from kevin.train.architecture import Architecture, architecture, read_architecture
from kevin.train.bill import SCALES, assumptions, bill_text, make_bill
from kevin.workflow import resources

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
    assert bill.num_kernels == 160
    assert bill.num_gradient_steps == 20
    assert bill.prompt_tokens == pytest.approx(160 * 500)
    assert bill.response_tokens == pytest.approx(16 * 0.6 * (5 * 500 + 5 * 1000))
    assert bill.judge_s == pytest.approx(16 / 150 * 60)
    flop = 8 * 1e9 * (bill.prompt_tokens + bill.response_tokens)
    assert bill.update_s == pytest.approx(flop / 10 / (0.15e12 * 0.6))
    assert (bill.weights_gb, bill.gradients_gb, bill.optimizer_gb) == (4, 4, 8)
    assert bill.state_gb == 16
    assert bill.peak_gb == pytest.approx(given.harness_gb + bill.state_gb + bill.activation_gb)
    assert bill.device_hours == bill.total_hours


def test_the_laptop_s_bill_is_what_its_run_was_seen_to_take():
    """A step of 64 samples took 28 s on two cores of an EPYC; a run held 5.7 GB at its peak on two of a Xeon, pages
    that processes share counted once. A cluster is asked for more memory than the bill says."""
    laptop = load_study([CONFIG / "config.yaml"]).for_run("rl_multi")
    bill = make_bill(with_lengths(laptop, "base"), architecture(laptop), SCALES["laptop"])
    step_s = bill.total_hours * 3600 / bill.num_steps * 64 / laptop.train.batch_size
    assert 28 / 1.3 < step_s < 28 * 1.3
    assert 5.7 / 1.1 < bill.peak_gb < 5.7 * 1.1 < SCALES["laptop"].device_memory_gb
    assert resources.SCALES["laptop"].mem_mb == SCALES["laptop"].device_memory_gb * 1000


def test_zero3_by_hand():
    """bfloat16 weights on eight GPUs: 2 bytes, 4 of accumulated gradients, 4 of master weights, 8 of moments."""
    bill = make_bill(study(dtype="bfloat16"), MODEL, SCALES["paper"])
    assert (bill.weights_gb, bill.gradients_gb, bill.optimizer_gb) == (2 / 8, 4 / 8, 12 / 8)
    alone = make_bill(study(dtype="bfloat16"), MODEL, SCALES["paper"].model_copy(update={"num_devices": 1}))
    assert (alone.weights_gb, alone.gradients_gb, alone.optimizer_gb) == (2, 2, 4)


def test_activations_by_hand():
    """1,500 tokens of the longest sample, two samples at once, in bfloat16."""
    settings = {"gradient_checkpointing": True, "micro_batch_size": 2, "dtype": "bfloat16"}
    bill = make_bill(study(**settings), MODEL, SCALES["paper"])
    inputs, inside = 10 * 1000, 10 * 1000 + 4 * 4000
    assert bill.activation_gb == pytest.approx(2 * 1500 * 2 * (inputs + inside) / 1e9)
    bill = make_bill(study(**settings | {"gradient_checkpointing": False}), MODEL, SCALES["paper"])
    assert bill.activation_gb == pytest.approx(2 * 1500 * 2 * (inputs + 10 * inside) / 1e9)


def test_a_cache_by_hand():
    """Keys and values of 10 layers with 2 heads of 100 numbers; five of the layers look back on 600 tokens."""
    assert MODEL.kv_bytes(1500) == 2 * 2 * 10 * 2 * 100 * 1500
    windowed = MODEL.model_copy(update={"windows": (600, None) * 5})
    assert windowed.kv_bytes(1500) == 2 * 2 * 2 * 100 * (5 * 600 + 5 * 1500)
    assert windowed.kv_bytes(500) == MODEL.kv_bytes(500)
    latent = MODEL.model_copy(update={"cached_numbers": 576})
    assert latent.kv_bytes(10) == 2 * 10 * 576 * 10
    bill = make_bill(study(dtype="bfloat16"), windowed, SCALES["paper"])
    assert bill.kv_gb == pytest.approx(windowed.kv_bytes(1500) / 1e9)


def test_generating_by_hand():
    """One engine on one device, bound by its memory's bandwidth: weights and 8 caches for 8 tokens, in each turn."""
    given = SCALES["gpu"].model_copy(update={"response_share": 0.6, "prompt_share": 0.5})
    train = study(dtype="bfloat16", generation="vllm_colocate", vllm_memory_share=0.3)
    bill = make_bill(train, MODEL, given)
    assert bill.num_running == 8
    cache = MODEL.kv_bytes(500 + 300 / 2)
    step_s = (2 * 1e9 + 8 * cache) / (4.8e12 * 0.3)
    prefill_s = 2 * 1e9 * 16 * 500 / (989e12 * 0.1)
    assert bill.generate_s == pytest.approx(2 * 300 * step_s + prefill_s)
    slow = given.model_copy(update={"peak_tflops": 0.01})
    by_arithmetic = 300 * 2 * 1e9 * 16 / (0.01e12 * 0.1) + 2 * 1e9 * 16 * 500 / (0.01e12 * 0.1)
    assert make_bill(train, MODEL, slow).generate_s == pytest.approx(by_arithmetic)


def test_what_is_assumed_can_be_changed_by_name():
    given = assumptions("gpu", {"response_share": "1", "num_devices": 2})
    assert (given.response_share, given.num_devices) == (1.0, 2)
    assert given.model_copy(update={"response_share": 0.6, "num_devices": 1}) == SCALES["gpu"]
    with pytest.raises(ConfigError, match="nothing is assumed about share; there are num_devices, "):
        assumptions("gpu", {"share": "1"})
    for value, problem in (("2", "less than or equal to 1"), ("much", "valid number")):
        with pytest.raises(ConfigError, match=f"response_share = {value} cannot be assumed: .*{problem}"):
            assumptions("gpu", {"response_share": value})


def test_a_mixture_trains_what_a_token_uses_and_holds_all():
    mixture = MODEL.model_copy(update={"expert_parameters": 0.8e9, "expert_share": 0.25})
    assert mixture.active_parameters == pytest.approx(0.4e9)
    assert mixture.read_parameters(1) == pytest.approx(0.4e9)
    assert mixture.read_parameters(2) == pytest.approx(1e9 - 0.75**2 * 0.8e9)
    bills = [make_bill(study(), m, SCALES["paper"]) for m in (mixture, MODEL)]
    assert bills[0].update_s == pytest.approx(0.4 * bills[1].update_s)
    assert bills[0].state_gb == bills[1].state_gb


def test_an_engine_that_cannot_hold_the_weights_is_told():
    small = study(dtype="bfloat16", generation="vllm_colocate", vllm_memory_share=0.01)
    assert not make_bill(small, MODEL, SCALES["gpu"]).engine_fits
    assert make_bill(study(dtype="bfloat16"), MODEL, SCALES["gpu"]).engine_fits


def test_the_paper_s_run():
    """Known beside the recipe: 73.7 GB of states a GPU, about 105 GB at the peak, about an hour a step."""
    paper = load_study([CONFIG / "config.yaml", CONFIG / "paper.yaml"]).for_run("rl_multi")
    bill = make_bill(paper, architecture(paper), SCALES["paper"])
    assert bill.num_kernels == 40 * 512
    assert bill.num_gradient_steps == 80
    assert bill.state_gb == pytest.approx(73.7, rel=0.01)
    assert 90 < bill.peak_gb < 141
    assert 0.4 < bill.total_hours / 40 < 2
    text = bill_text(paper, "rl_multi")
    assert "GPU-hours" in text and "20,480" in text and "kernels_per_minute" in text


def test_the_rehearsal_s_bill_is_what_its_step_took():
    """A 7B model's step on two H200s: within a fifth, given how long its prompts and answers were."""
    folder = CONFIG.parent / "results/reference/nvidia-h200/rehearsal"
    record = json.loads((folder / "metrics.jsonl").read_text())
    with (folder / "memory.csv").open() as f:
        peak_gb = max(int(row[f"gpu{i}_mib"]) for row in csv.DictReader(f) for i in (0, 1)) * 2**20 / 1e9
    paper = load_study([CONFIG / "config.yaml", CONFIG / "paper.yaml"])
    step = {
        **{"num_steps": 1, "tasks_per_step": 2, "num_trajectories": 8, "num_turns": 1, "max_response_tokens": 12288},
        **{"raise_response_at_step": None, "raised_response_tokens": None, "vllm_tensor_parallel": 1},
    }
    rehearsal = paper.model_copy(
        update={
            "train": paper.train.model_copy(update=step),
            "rollout": paper.rollout.model_copy(update={"max_prompt_tokens": 4096}),
        }
    )
    model = read_architecture(folder / "model.json")
    given = assumptions("paper", {"num_devices": 2, "prompt_share": 760 / 4096, "kernels_per_minute": 1e9})
    share = record["completion_tokens"] / longest_response(rehearsal)
    bill = make_bill(rehearsal, model, given.model_copy(update={"response_share": share}))
    seconds = record["seconds"]
    for planned, measured in (
        (bill.generate_s, seconds["generate"]),
        (bill.update_s, seconds["update"]),
        (bill.total_hours * 3600, seconds["step"]),
        (bill.first_step_gb, peak_gb),
    ):
        assert planned == pytest.approx(measured, rel=0.2)
    assert bill.first_step_gb < bill.peak_gb < given.device_memory_gb


@pytest.mark.parametrize("overlay", ["config", "gpu", "coder", "paper"])
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


SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4}
GROUPED = SIZES | {"num_key_value_heads": 2, "vocab_size": 100}


@pytest.mark.parametrize(
    ("family", "sizes", "kv_heads", "intermediate"),
    [
        ("GPT2Config", {"n_embd": 32, "n_layer": 3, "n_head": 4, "vocab_size": 100}, 4, 128),
        ("Qwen2Config", GROUPED, 2, 48),
        ("Qwen2Config", GROUPED | {"tie_word_embeddings": True}, 2, 48),
        ("LlamaConfig", GROUPED, 2, 48),
        ("MixtralConfig", GROUPED | {"num_local_experts": 4, "num_experts_per_tok": 2}, 2, 96),
        ("OPTConfig", {"hidden_size": 32, "ffn_dim": 64, "num_hidden_layers": 3, "num_attention_heads": 4}, 4, 64),
    ],
)
def test_any_family_is_counted_from_its_configuration_alone(tmp_path, family, sizes, kv_heads, intermediate):
    import transformers

    config = getattr(transformers, family)(**sizes)
    config.save_pretrained(tmp_path)
    found = architecture(local(tmp_path))
    whole = transformers.AutoModelForCausalLM.from_config(config)
    assert found.num_parameters == whole.num_parameters()
    assert (found.num_layers, found.hidden_size, found.head_size) == (3, 32, 8)
    assert (found.num_kv_heads, found.intermediate_size) == (kv_heads, intermediate)
    assert found == architecture(local(tmp_path / "config.json"))
    assert "parameters" in bill_text(local(tmp_path))


def test_a_mixture_s_experts_are_told_apart(tmp_path):
    """Of four experts of three matrices each token goes through two."""
    import transformers

    transformers.MixtralConfig(**GROUPED | {"num_local_experts": 4, "num_experts_per_tok": 2}).save_pretrained(tmp_path)
    found = architecture(local(tmp_path))
    assert found.expert_parameters == 3 * 4 * 3 * 32 * 48
    assert found.active_parameters == found.num_parameters - 3 * 2 * 3 * 32 * 48
    assert "of them for a token" in bill_text(local(tmp_path))


def test_windows_are_read_layer_by_layer(tmp_path):
    import transformers

    sizes = GROUPED | {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1}
    transformers.Qwen2Config(**sizes).save_pretrained(tmp_path / "some")
    transformers.Qwen2Config(**sizes | {"use_sliding_window": False}).save_pretrained(tmp_path / "none")
    transformers.MistralConfig(**GROUPED | {"sliding_window": 16}).save_pretrained(tmp_path / "all")
    found = {name: architecture(local(tmp_path / name)) for name in ("some", "none", "all")}
    assert {name: own.windows for name, own in found.items()} == {"some": (None, 16, 16), "none": (), "all": (16,) * 3}
    a_token = 2 * 2 * 2 * 8
    assert [own.kv_bytes(100) / a_token for own in found.values()] == [132, 300, 48]


def test_a_hub_id_is_read_from_the_cache(tmp_path, monkeypatch):
    import huggingface_hub
    import transformers

    transformers.LlamaConfig(**GROUPED).save_pretrained(tmp_path)
    asked = []

    def cached(model, name, *, revision, local_files_only):
        asked.append((model, name, local_files_only))
        return str(tmp_path / name)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", cached)
    base = study().policies["base"].model_copy(update={"model": "owner/name"})
    assert architecture(study().model_copy(update={"policies": {"base": base}})).hidden_size == 32
    assert asked == [("owner/name", "config.json", True)], "nothing is downloaded"


WHOLE = '"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 9, "intermediate_size": 8'


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "Expecting property name"),
        ("[]", ""),
        ("{}", ""),
        ('{"model_type": "nobody"}', "nobody"),
        ('{"model_type": "vit"}', ""),
        (f'{{"model_type": "bert", {WHOLE}}}', "bert is not a causal language model"),
        ('{"model_type": "t5", "d_model": 8}', "t5 is not a causal language model"),
        ('{"model_type": "qwen2"}', "num_hidden_layers and hidden_size and num_attention_heads and vocab_size"),
        (f'{{"model_type": "qwen2", {WHOLE.partition(", ")[2]}}}', "hidden_size is not in it"),
        (f'{{"model_type": "llama", {WHOLE.rpartition(", ")[0]}}}', "intermediate_size is not in it"),
    ],
)
def test_a_folder_of_something_else_is_named_in_one_sentence(tmp_path, content, said):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ConfigError, match=f"no bill for {tmp_path}/config.json: .*{said}") as caught:
        bill_text(local(tmp_path))
    assert "\n" not in str(caught.value)


def test_the_command_takes_a_model_and_a_number_of_gpus(tmp_path):
    import transformers
    from typer.testing import CliRunner

    from kevin.cli.app import app

    transformers.MistralConfig(**GROUPED | {"hidden_size": 64, "vocab_size": 100_000}).save_pretrained(tmp_path)
    config = ["-c", str(CONFIG / "config.yaml"), "-c", str(CONFIG / "paper.yaml")]
    states = []
    for number in ("2", "4"):
        done = CliRunner().invoke(app, ["plan", "--model", str(tmp_path), "--gpus", number, *config])
        assert done.exit_code == 0, done.output
        assert str(tmp_path) in done.output and re.search(rf"num_devices +{number}\n", done.output)
        states.append(float(re.search(r"states +([\d.e-]+) GB", done.output)[1]))
    assert states[0] == pytest.approx(2 * states[1], rel=0.01)
