"""The bill of a training run before it is made: arithmetic from the configuration and from stated assumptions.

FLOP a token: 2 a parameter that it goes through forward, 4 backward, 2 for recomputed activations, and 2 for the
log-probabilities before the update. Bytes a parameter under ZeRO-3: 2 bf16 weights, 4 fp32 accumulated gradients, 12
fp32 master and Adam moments; all divided by the devices. A single device trains without ZeRO: weights, gradients and
the two moments in the weights' type. Activations: each layer's input, and all of one layer's inside where they are
recomputed. Scores over the vocabulary are made a chunk at a time and not counted. Beside an adapter (train.lora) the
weights stay as they are: no gradient of theirs is computed (2 FLOP a token less) or held, and each number of the
adapter takes 16 bytes.

Generating reads, for every token of the answers that run at once, the weights (of a mixture the experts that any of
them chooses) and their caches; and it computes every prompt once, 2 FLOP a parameter and token.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, ValidationError

from kevin.core.config import Study, TrainConfig
from kevin.core.errors import ConfigError
from kevin.core.lengths import longest_response, response_tokens, with_lengths
from kevin.core.types import Frozen
from kevin.train.architecture import Architecture, architecture
from kevin.train.checkpoint import NUM_CHECKPOINTS

GB = 1e9


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
    start_s: float = Field(default=0, ge=0)
    """Once a run: the model and the engine are loaded, and what is compiled is compiled."""
    harness_gb: float = Field(default=0, ge=0)
    """What else lives in the same memory. Where training and judging share a machine's, Python, PyTorch and the judge's
    processes with the tensors of some twenty tasks; pages that processes share are counted once. On a GPU, CUDA's
    context, the buffers of its libraries, what PyTorch's allocator keeps, and the least that the judge works in, which
    takes what is left, up to 95 % of the GPU."""
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
        harness_gb=5.4,
    ),
    "gpu": Assumptions(
        num_devices=1,
        device_memory_gb=150,
        peak_tflops=989,
        utilisation=0.1,
        bandwidth_tb_per_s=4.8,
        bandwidth_share=0.3,
        max_concurrent=512,
        kernels_per_minute=200,
    ),
    "coder": Assumptions(
        num_devices=1,
        device_memory_gb=150,
        peak_tflops=989,
        utilisation=0.49,
        bandwidth_tb_per_s=4.8,
        bandwidth_share=0.75,
        max_concurrent=256,
        prompt_share=0.45,
        response_share=0.5,
        kernels_per_minute=320,
        start_s=120,
        harness_gb=12,
    ),
    "paper": Assumptions(
        num_devices=8,
        device_memory_gb=150,
        peak_tflops=989,
        utilisation=0.35,
        bandwidth_tb_per_s=4.8,
        bandwidth_share=0.6,
        max_concurrent=256,
        kernels_per_minute=60,
        harness_gb=9,
    ),
}
"""By ``scale``. Small models are bound by launches, not by arithmetic: hence their low shares. The laptop's figures are
of two cores of an AMD EPYC: the own model's answers have 46 tokens in the mean, its prompts 115. Those of ``gpu`` are
for a model of a hundred million parameters on an H200, and of them only the judging was measured. Those of ``paper``
were held against a step of a 7B model on two H200s (results/reference/nvidia-h200/rehearsal), those of ``coder``
against steps of both trainings on one (results/reference/nvidia-h200/coder_rehearsal). A GPU's memory is in 10^9
bytes, of which an H200's 141 GB are 150."""


class Bill(Frozen):
    """A run's bill. Per step where it says so."""

    num_steps: int
    num_gradient_steps: int
    num_kernels: int
    prompt_tokens: float
    """Of the whole run, as processed in training."""
    response_tokens: float
    generate_s: float
    """Of a mean step."""
    judge_s: float
    update_s: float
    step_s: float
    """Of all of them, with what else a step takes."""
    total_hours: float
    device_hours: float
    weights_gb: float
    """A device's part of them in training."""
    gradients_gb: float
    optimizer_gb: float
    """Master weights and moments, a device."""
    state_gb: float
    """Weights, gradients and optimiser, a device."""
    activation_gb: float
    """At the longest sample, a device."""
    engine_gb: float
    """What the generation engine holds while it is awake, a device."""
    kv_gb: float
    """The engine's cache of one answer at the full context, over all devices that share an engine."""
    num_running: int
    """Answers that one engine decodes at once, in the mean length."""
    engine_fits: bool
    """Whether the engine has room for its weights and one answer at the full context."""
    peak_gb: float
    """The larger of training (engine asleep) and generating (beside the states), a device, with all that is beside."""
    first_step_gb: float
    """The same in the first step, which generates before its first gradient step makes the optimiser's moments."""
    checkpoint_gb: float
    """One checkpoint."""
    disk_gb: float
    """Checkpoints, turns and verdicts at the end."""


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
    longest = prompt_tokens + longest_response(study)
    engine_of = _Engine(study, model, given, bytes_a_number)
    running = engine_of.running(mean_length)
    flops = devices * given.peak_tflops * 1e12 * given.utilisation
    generate_s = responses / train.num_steps / engine_of.tokens_per_s(running, mean_length)
    generate_s += 2 * model.active_parameters * prompts / train.num_steps / flops
    judge_s = train.batch_size / given.kernels_per_minute * 60
    flop_a_parameter = 8 + 2 * train.gradient_checkpointing - 2 * (train.lora is not None)
    flop = flop_a_parameter * model.active_parameters * (prompts + responses)
    update_s = flop * train.num_iterations / train.num_steps / flops
    step_s = (generate_s + judge_s + update_s) * (1 + given.overhead_share)
    hours = (given.start_s + train.num_steps * step_s) / 3600
    weights, gradients, master, moments = (size / GB for size in _states(model, train, bytes_a_number, devices))
    optimizer = master + moments
    state = weights + gradients + optimizer
    activations = _activation_gb(
        model, longest * train.micro_batch_size, 2 if train.autocast else bytes_a_number, train.gradient_checkpointing
    )
    vllm = train.generation == "vllm_colocate"
    engine = train.vllm_memory_share * given.device_memory_gb if vllm else 0.0
    checkpoint = policy = (bytes_a_number + 12) * model.num_parameters / GB
    if train.lora is not None:
        checkpoint = 12 * adapter_parameters(model, train.lora.rank) / GB
        policy = bytes_a_number * model.num_parameters / GB
    num_kernels = train.batch_size * train.num_steps
    return Bill(
        num_steps=train.num_steps,
        num_gradient_steps=train.num_steps * train.updates_per_step * train.num_iterations,
        num_kernels=num_kernels,
        prompt_tokens=prompts,
        response_tokens=responses,
        generate_s=generate_s,
        judge_s=judge_s,
        update_s=update_s,
        step_s=step_s,
        total_hours=hours,
        device_hours=hours * devices,
        weights_gb=weights,
        gradients_gb=gradients,
        optimizer_gb=optimizer,
        state_gb=state,
        activation_gb=activations,
        engine_gb=engine,
        kv_gb=engine_of.cache(longest) / GB,
        num_running=running,
        engine_fits=engine_of.room >= engine_of.cache(longest),
        peak_gb=given.harness_gb + state + max(activations, engine),
        first_step_gb=given.harness_gb + state + max(activations, engine - moments),
        checkpoint_gb=checkpoint,
        disk_gb=checkpoint * NUM_CHECKPOINTS
        + policy
        + (responses * given.bytes_per_token_on_disk + num_kernels * given.verdict_kb * 1e3) / GB,
    )


def _states(model: Architecture, train: TrainConfig, bytes_a_number: int, devices: int) -> tuple[float, ...]:
    """Bytes on a device: weights, gradients, master weights and moments; see the module's text."""
    count = model.num_parameters / devices
    if train.lora is not None:
        own = adapter_parameters(model, train.lora.rank)
        return bytes_a_number * count, 4 * own, 4 * own, 8 * own
    if devices == 1:
        return bytes_a_number * count, bytes_a_number * count, 0, 2 * bytes_a_number * count
    return bytes_a_number * count, 4 * count, 4 * count, 8 * count


def adapter_parameters(model: Architecture, rank: int) -> float:
    """Of an adapter on every linear layer of a dense model."""
    hidden, keys = model.hidden_size, model.num_kv_heads * model.head_size
    a_layer = 2 * (hidden + hidden) + 2 * (hidden + keys) + 3 * (hidden + model.intermediate_size)
    return model.num_layers * rank * a_layer


class _Engine:
    """What decodes: one engine over the devices that share it."""

    def __init__(self, study: Study, model: Architecture, given: Assumptions, bytes_a_number: int) -> None:
        train = study.train
        self._train, self._model, self._given, self._bytes = train, model, given, bytes_a_number
        self._devices = train.vllm_tensor_parallel if train.generation != "transformers" else 1
        share = train.vllm_memory_share if train.generation == "vllm_colocate" else 0.9
        memory = share * given.device_memory_gb * GB * self._devices
        self.room = memory - bytes_a_number * model.num_parameters
        """Bytes beside the weights, for caches."""

    def cache(self, num_tokens: float) -> float:
        """Bytes of one answer with its prompt."""
        return self._model.kv_bytes(num_tokens) * self._bytes / 2

    @property
    def num_engines(self) -> int:
        return max(1, self._given.num_devices // self._devices)

    def running(self, mean_length: float) -> int:
        trajectories = self._train.tasks_per_step * self._train.num_trajectories
        at_most = min(self._given.max_concurrent, -(-trajectories // self.num_engines))
        return max(1, min(at_most, int(self.room / self.cache(mean_length))))

    def tokens_per_s(self, running: int, mean_length: float) -> float:
        """All devices: bound by reading weights and caches, or by the arithmetic where that takes longer."""
        given, model = self._given, self._model
        read = self._bytes * model.read_parameters(running) + running * self.cache(mean_length)
        reading = read / (self._devices * given.bandwidth_tb_per_s * 1e12 * given.bandwidth_share)
        flops = self._devices * given.peak_tflops * 1e12 * given.utilisation
        seconds = max(reading, 2 * model.active_parameters * running / flops)
        return running / seconds * self.num_engines


def _activation_gb(model: Architecture, tokens: int, bytes_a_number: int, checkpointed: bool) -> float:
    """Kept activations: each layer's input, and all of one layer's inside; without recomputation, of every layer."""
    inside = tokens * (10 * model.hidden_size + 4 * model.intermediate_size) * bytes_a_number
    inputs = model.num_layers * tokens * model.hidden_size * bytes_a_number
    return (inputs + inside if checkpointed else inputs + model.num_layers * inside) / GB


def assumptions(scale: str, changes: Mapping[str, Any] | None = None) -> Assumptions:
    """Those of a scale, some of them changed. Raises ConfigError for an unknown name or an impossible value."""
    given = SCALES[scale].model_dump()
    if unknown := [name for name in changes or {} if name not in given]:
        raise ConfigError(f"nothing is assumed about {unknown[0]}; there are {', '.join(given)}")
    try:
        return Assumptions.model_validate({**given, **(changes or {})})
    except ValidationError as e:
        first = e.errors()[0]
        raise ConfigError(f"{first['loc'][0]} = {first['input']} cannot be assumed: {first['msg'].lower()}") from None


def bill_text(study: Study, run: str | None = None, changes: Mapping[str, Any] | None = None) -> str:
    """The bill for a person to read.

    Args:
        changes: of what is assumed, by name.

    Raises:
        ConfigError: a model of unknown size; as `assumptions`.
    """
    model, given = architecture(study), assumptions(study.scale, changes)
    study = with_lengths(study, study.train.init)
    bill = make_bill(study, model, given)
    train, init = study.train, study.policies[study.train.init].model
    device = "GPU" if study.scale != "laptop" else "machine"
    active = f", {_short(model.active_parameters)} of them for a token" if model.expert_share < 1 else ""
    beside = "CUDA, its libraries, the allocator, the judge, which takes more where it is free"
    if study.scale == "laptop":
        beside = "Python, PyTorch, the judge"
    fits = "" if bill.peak_gb <= given.device_memory_gb else "   << more than there is"
    rows = [
        ("Model", f"{init}, {_short(model.num_parameters)} parameters{active}"),
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
        ("All of it", f"{_time(bill.step_s)} a step"),
        ("Wall time", _time(bill.total_hours * 3600)),
        (f"{device}-hours", f"{bill.device_hours:.3g}"),
        ("", ""),
        ("Memory", f"{bill.peak_gb:.3g} GB a {device} at the peak, of {given.device_memory_gb:g} GB{fits}"),
        (
            "  states",
            f"{bill.state_gb:.3g} GB: weights {bill.weights_gb:.3g}, gradients {bill.gradients_gb:.3g}, optimiser"
            f" {bill.optimizer_gb:.3g}",
        ),
        ("  activations", f"{bill.activation_gb:.3g} GB at the longest sample"),
        (
            "  engine",
            f"{bill.engine_gb:.3g} GB while it generates, asleep in training"
            f"{'' if bill.engine_fits else '   << too little for its weights and one whole answer'}",
        ),
        (
            "  cache",
            f"{bill.kv_gb:.3g} GB an answer at the full context; {bill.num_running} answers of mean length at once",
        ),
        ("  all else", f"{given.harness_gb:.3g} GB: {beside}" if given.harness_gb else "not counted"),
        ("  first step", f"{bill.first_step_gb:.3g} GB: it generates before there are moments"),
        ("Disk", f"{bill.disk_gb:.3g} GB ({NUM_CHECKPOINTS} checkpoints of {bill.checkpoint_gb:.3g} GB, export)"),
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
