"""The judging protocol: everything that can change a verdict. Its digest is part of every verdict's key."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from kevin.core.types import Device, Language, Settings, canonical_json, digest

PROTOCOL_VERSION = 16
"""Raised whenever the judge's code changes what it would find; verdicts of other versions are not reused."""

GPU_REVISION = 1
"""The same of what it would find on a GPU alone, so that verdicts of a CPU stay."""


def judge_versions(device: Device) -> tuple[int, ...]:
    """Of all that judges on a device."""
    return (PROTOCOL_VERSION, GPU_REVISION) if device == "cuda" else (PROTOCOL_VERSION,)


Rule = Literal[
    "no_kernel",
    "torch_compute",
    "try_except",
    "pass_statement",
    "inherits_model",
    "harness_access",
    "fixed_shapes",
    "memory_leak",
]
Flag = Rule | Literal["kernelbench_disagrees"]
"""What may stand in a verdict's flags."""


ONLY_FLOAT32 = (
    "a kernel's header and the tolerances are float32's: let a reference that is about another type convert inside its "
    "forward. Of its results a few are further off than float32's may be: give them --tolerance 1e-2, as KernelBench "
    "does (atol and rtol of a configuration)"
)
_CONSTANTS = ("precision", "call_slowdown", "inline_build_timeout_s", "max_output_kb")
"""Of `JudgeProtocol`: no keys, and part of its digest."""


class TimingProtocol(Settings):
    """Interleaved rounds of kernel and eager reference, until the paired ratio is known well enough."""

    min_rounds: int = Field(default=6, ge=3)
    """Rounds that are always measured; on a GPU fewer, but three, where calls are longer than a round."""
    max_rounds: int = Field(default=40, ge=3)
    """Rounds after which it stops in any case."""
    round_us: float = Field(default=4000.0, gt=0)
    """Wanted length of one side of a round, in microseconds; sets how many calls a round has."""
    max_calls_per_round: int = Field(default=6, ge=1)
    """Every timed call gets input and output buffers of its own and finds the caches empty, which takes milliseconds on
    a host: this bounds memory and time."""
    warmup_s: float = Field(default=0.06, ge=0)
    """Untimed calls of both sides before the first round, on a CPU; a GPU's memory needs one pass only."""
    budget_s: float = Field(default=0.6, gt=0)
    """Wall time after which no further round is started, unless the ratio is hardly known by then."""
    relative_error: float = Field(default=0.02, gt=0)
    """Stop when the standard error of the mean paired ratio falls below this share of it."""

    @model_validator(mode="after")
    def _least_is_not_above_most(self) -> Self:
        if self.min_rounds > self.max_rounds:
            raise ValueError(f"min_rounds: {self.min_rounds} are more than max_rounds, {self.max_rounds}")
        return self


class JudgeProtocol(Settings):
    """How a kernel is built, checked and timed."""

    version: int = PROTOCOL_VERSION
    """Version of the judge's code; not to be set."""
    device: Device = "cpu"
    """Where kernels run."""
    precision: ClassVar[Literal["float32"]] = "float32"
    """Data type of inputs and weights: prompts, headers and tolerances are made for it."""
    num_trials: int = Field(default=3, ge=1)
    """Correctness trials, each with fresh secret inputs."""
    distributions: tuple[Literal["task", "normal", "wide", "shifted"], ...] = ("task", "normal")
    """Trial i draws its inputs from distribution i modulo their number; ``task`` is the module's own get_inputs()."""
    shapes: int = Field(default=0, ge=0)
    """Odd sizes near the task's own at which a correct kernel must be right too, against float64, where the reference
    takes them; a ``c_abi`` kernel is compiled for each. 0: none, as in KernelBench."""
    atol: float = Field(default=1e-4, gt=0)
    """Absolute tolerance of an output's element."""
    rtol: float = Field(default=1e-4, ge=0)
    """Relative tolerance of an output's element."""
    tf32: Literal["torch_default", "off"] = "torch_default"
    """TF32 on a GPU. ``torch_default``: PyTorch's own flags, untouched on both sides; expected values are full float32
    and the tolerance grows by what PyTorch's default itself deviates from them, also with channels last and the fastest
    convolutions that cuDNN finds. ``off``: cleared on both sides."""
    rules: tuple[Rule, ...] = (
        "no_kernel",
        "torch_compute",
        "try_except",
        "pass_statement",
        "inherits_model",
        "harness_access",
        "memory_leak",
    )
    """Rules enforced; hits of the others are still recorded as flags."""
    cpp_flags: tuple[str, ...] = ("-O3", "-march=native", "-fopenmp", "-std=c++17")
    """Flags of g++."""
    cuda_flags: tuple[str, ...] = ("-O3", "-std=c++17")
    """Flags of nvcc."""
    num_threads: int = Field(default=1, ge=1)
    """Threads of the CPU device, for kernel and reference alike; the device is that many cores, leased exclusively."""
    build_timeout_s: float = Field(default=20.0, gt=0)
    """Time limit for compiling one ``c_abi`` kernel."""
    inline_build_timeout_s: ClassVar[float] = 180.0
    """Time limit for building one ``load_inline`` module; torch's headers alone take most of a minute."""
    run_timeout_s: float = Field(default=10.0, gt=0)
    """Wall time of all correctness trials together, and again of the timing."""
    call_timeout_s: float = Field(default=3.0, gt=0)
    """Wall time of one call in a trial, where ``call_slowdown`` times the reference's own is not longer."""
    call_slowdown: ClassVar[float] = 300.0
    """How many times as long as the reference a call in a trial may take, where that is longer."""
    memory_mb: int = Field(default=2048, ge=64)
    """Memory of one candidate beyond the harness's own buffers."""
    max_output_kb: ClassVar[int] = 64
    """What a candidate may print before it is cut off."""
    timing: TimingProtocol = TimingProtocol()
    """How often and how long is timed."""
    profiler: Literal["none", "ncu"] = "none"
    """``ncu``: correct CUDA kernels run once more, under Nsight Compute, for occupancy and stalls; seconds a kernel."""

    memcheck: bool = False
    """One more call of a correct CUDA kernel under compute-sanitizer, which must be installed; seconds a kernel."""

    @field_validator("version")
    @classmethod
    def _is_this_version(cls, version: int) -> int:
        if version != PROTOCOL_VERSION:
            raise ValueError(
                f"this code judges by version {PROTOCOL_VERSION}, not {version}: leave the key out, or use the code "
                f"that the configuration was saved with"
            )
        return version

    @model_validator(mode="after")
    def _profiles_a_gpu(self) -> Self:
        if self.profiler == "ncu" and self.device != "cuda":
            raise ValueError("profiler ncu needs device cuda")
        if self.memcheck and self.device != "cuda":
            raise ValueError("memcheck needs device cuda; on a CPU every kernel's memory is checked")
        return self

    @property
    def language(self) -> Language:
        """Of kernels, where none is named."""
        return "cuda" if self.device == "cuda" else "cpp"

    @property
    def identity(self) -> dict[str, Any]:
        """Its keys, and on a GPU what is judged there alone."""
        keys = self.model_dump(mode="json")
        return keys | {"gpu_revision": GPU_REVISION} if self.device == "cuda" else keys

    @cached_property
    def digest(self) -> str:
        keys = self.identity | {name: getattr(self, name) for name in _CONSTANTS}
        return digest("protocol", canonical_json(keys))
