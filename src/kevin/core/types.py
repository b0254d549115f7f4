"""The study's data: tasks, kernels, verdicts, turns. Frozen, validated, serialisable, without behaviour or torch."""

from __future__ import annotations

import hashlib
import math
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from kevin.core.texts import strict_json

Dialect = Literal["c_abi", "load_inline"]
Language = Literal["cpp", "cuda"]
Device = Literal["cpu", "cuda"]
DType = Literal["float32", "float16", "bfloat16", "float64", "int64", "int32", "bool"]
_ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8, "int64": 8, "int32": 4, "bool": 1}


def _as_text(text: str) -> str:
    return text.encode(errors="replace").decode()


Text = Annotated[str, AfterValidator(_as_text)]
"""What a model or a kernel says: half of a surrogate pair, which no file can hold, becomes a question mark."""


def _without_controls(text: str) -> str:
    return _CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""All but line ends and tabs."""
Words = Annotated[Text, AfterValidator(_without_controls)]
"""What a kernel says to people: a character that a terminal acts upon is written out, as ``\\x1b``."""


class Frozen(BaseModel):
    """Base of all records: immutable, no unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """As pydantic's, but without the cached digests of the original."""
        copy = super().model_copy(update=update, deep=deep)
        for name in copy.__dict__.keys() - type(self).model_fields.keys():
            del copy.__dict__[name]
        return copy


class Settings(Frozen):
    """Base of what people set: its numbers are finite, as JSON and digests of it have no others."""

    model_config = ConfigDict(allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _yes_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Else YAML's ``true``, ``yes`` and ``on`` are taken for 1."""
        kinds = {annotation := cls.model_fields[str(info.field_name)].annotation, *get_args(annotation)}
        if isinstance(value, bool) and kinds & {int, float} and bool not in kinds:
            raise ValueError(f"a number is wanted, and this is {str(value).lower()}")
        return value


def digest(*parts: str | bytes) -> str:
    """SHA-256 over length-prefixed parts, as 64 hex digits. Unlike a join, ("ab", "c") and ("a", "bc") differ."""
    h = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        h.update(len(data).to_bytes(8, "little"))
        h.update(data)
    return h.hexdigest()


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text."""
    return strict_json(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


# --- tasks ------------------------------------------------------------------------------------------------------


class OpCall(Frozen):
    """One operator of a task with its constant attributes, e.g. ``OpCall(name="softmax", attrs={"dim": 1})``."""

    name: str
    attrs: dict[str, int | float] = {}


class TensorSpec(Frozen):
    """One argument, parameter or result of a task. A scalar has ``kind="scalar"`` and the shape ``()``."""

    name: str
    """A valid C identifier, unique within its task."""
    shape: tuple[int, ...]
    dtype: DType
    kind: Literal["tensor", "scalar"] = "tensor"
    stride: tuple[int, ...] | None = None
    """Of an input that its task does not give contiguous, in elements."""

    @property
    def num_elements(self) -> int:
        return math.prod(self.shape)

    @property
    def num_bytes(self) -> int:
        return self.num_elements * _ITEM_BYTES[self.dtype]


def tensor_bytes(specs: Iterable[TensorSpec]) -> int:
    """Of those that are tensors, together."""
    return sum(s.num_bytes for s in specs if s.kind == "tensor")


class TaskSpec(Frozen):
    """What goes into `Model.forward` and what comes out, read off the module itself."""

    inputs: tuple[TensorSpec, ...]
    parameters: tuple[TensorSpec, ...] = ()
    """`named_parameters()` then floating-point `named_buffers()`, in PyTorch's order, dots replaced by underscores."""
    outputs: tuple[TensorSpec, ...]

    @property
    def num_bytes(self) -> int:
        """Of inputs, parameters and outputs together."""
        return tensor_bytes((*self.inputs, *self.parameters, *self.outputs))


class Task(Frozen):
    """One reference module in KernelBench's format (`Model`, `get_inputs`, `get_init_inputs`)."""

    id: str
    """Unique and stable, e.g. ``l1/layer_norm``, ``l2/017_conv2d_relu_sum``, ``kb/1/40``."""
    level: int = Field(ge=1, le=4)
    name: str
    source: str
    ops: tuple[OpCall, ...] = ()
    """The operator sequence where it is known (own tasks); empty for others."""
    origin: Literal["catalog", "composed", "kernelbench", "user"]
    flaws: tuple[str, ...] = ()
    """Known quality flaws, e.g. ``constant_output``; tables are reported with and without flawed tasks."""
    spec: TaskSpec | None = None

    @cached_property
    def digest(self) -> str:
        return digest("task", self.source)


class Kernel(Frozen):
    """A candidate: what a policy wrote in place of a task's reference."""

    dialect: Dialect
    language: Language
    source: str

    @cached_property
    def digest(self) -> str:
        """Of the source without trailing spaces and blank edge lines, so that trivially equal kernels are one.

        Whatever may change the meaning is kept: the first line's indentation, spaces after a backslash, form feeds.
        """
        lines = [line.rstrip(" \t\r") for line in self.source.split("\n")]
        kept = [raw if line.endswith("\\") else line for raw, line in zip(self.source.split("\n"), lines, strict=True)]
        return digest("kernel", self.dialect, self.language, "\n".join(kept).strip("\n"))


# --- verdicts ---------------------------------------------------------------------------------------------------


class Outcome(StrEnum):
    """What became of a kernel. All of them are the candidate's own doing; the harness's failures are exceptions."""

    PARSE_ERROR = "parse_error"
    """The completion holds no kernel (or more than can be told apart)."""
    REFUSED = "refused"
    """A format or hack rule was hit."""
    COMPILE_ERROR = "compile_error"
    RUNTIME_ERROR = "runtime_error"
    """Crashed, raised, exited early, or asked for what the sandbox forbids."""
    TIMEOUT = "timeout"
    """Compiling or running took longer than the protocol allows."""
    INCORRECT = "incorrect"
    QUARANTINED = "quarantined"
    """Correct outputs at an impossible speed, or a tampered clock: kept for a person to look at, never rewarded."""
    CORRECT = "correct"

    @property
    def compiles(self) -> bool:
        """Whether there was a kernel that came through its compiler; one that ran out of time may not have."""
        return self not in (Outcome.PARSE_ERROR, Outcome.REFUSED, Outcome.COMPILE_ERROR)


class Timing(Frozen):
    """Wall time of one call, from ``num_samples`` timed calls. Full precision; ratios are derived later."""

    median_us: float = Field(gt=0)
    iqr_us: float = Field(ge=0)
    min_us: float = Field(gt=0)
    num_samples: int = Field(ge=1)


class Round(Frozen):
    """One interleaved round: (lower) median time of one call of the kernel and of the eager reference, back to back."""

    kernel_us: float = Field(gt=0)
    reference_us: float = Field(gt=0)


class Verdict(Frozen):
    """What the judge found. Immutable and content-addressed: the same key is never judged twice."""

    key: str
    """Digest of task, kernel, judging protocol and device name: see `judge.store.verdict_key`."""
    task_digest: str
    kernel_digest: str
    protocol_digest: str
    device_name: str
    outcome: Outcome
    reason: Words | None = None
    """A flat code that refines the outcome, e.g. ``segmentation_fault``, ``wrong_shape``, ``input_mutated``."""
    message: Words = ""
    """What the author of the kernel is told: compiler errors with source lines, where values differ, ..."""
    flags: tuple[str, ...] = ()
    """Every rule hit by the kernel, also where the rule was not enforced."""
    trials_passed: int = Field(default=0, ge=0)
    num_trials: int = Field(default=0, ge=0)
    max_abs_error: float | None = None
    max_rel_error: float | None = None
    """Of |out - ref| / (|ref| + atol/rtol), the largest over all checked outputs."""
    timing: Timing | None = None
    reference_timing: Timing | None = None
    """The eager reference, measured interleaved with the kernel by the same clock."""
    rounds: tuple[Round, ...] = ()
    seconds: dict[str, float] = {}
    """Cost of judging by stage: ``build``, ``check``, ``time``."""
    details: dict[str, float | int | Words | None] = {}
    """Measurements beside the timing that a device offers (bound, own-kernel share, registers); never exceptions."""

    @model_validator(mode="after")
    def _timing_only_when_correct(self) -> Self:
        measured = self.timing is not None
        if measured != (self.reference_timing is not None):
            raise ValueError("timing and reference_timing come together")
        if measured and self.outcome not in (Outcome.CORRECT, Outcome.QUARANTINED):
            raise ValueError(f"a kernel with outcome {self.outcome} must not carry a timing")
        if self.outcome is Outcome.CORRECT and not measured:
            raise ValueError("a correct kernel must carry its timing")
        return self

    @property
    def speedup(self) -> float | None:
        """T_reference / T_kernel over eager PyTorch: the median of the paired rounds' ratios (without rounds, the ratio
        of the medians); None unless correct.
        """
        if self.outcome is not Outcome.CORRECT or self.timing is None or self.reference_timing is None:
            return None
        if not self.rounds:
            return self.reference_timing.median_us / self.timing.median_us
        return statistics.median(r.reference_us / r.kernel_us for r in self.rounds)


# --- dialogue ---------------------------------------------------------------------------------------------------


class Message(Frozen):
    role: Literal["system", "user", "assistant"]
    content: str


Conversation = tuple[Message, ...]


class Exchange(Frozen):
    """What was asked at one turn of a transcript, and equally good answers to it."""

    turn: int
    answers: tuple[str, ...]
    """The first is the one that the transcript goes on with."""


class Transcript(Frozen):
    """A conversation up to the prompt of its last turn, and answers at some of its turns: what a base model reads."""

    task_id: str
    conversation: Conversation
    """The prompt of the last turn. Where it shows every earlier turn, its first 2 t - 1 messages are the prompt of turn
    t, from the second on."""
    exchanges: tuple[Exchange, ...]

    def asked(self) -> Iterator[tuple[Conversation, tuple[str, ...]]]:
        """The prompt of each exchange, with its answers."""
        for exchange in self.exchanges:
            is_last = exchange is self.exchanges[-1]
            yield self.conversation if is_last else self.conversation[: 2 * exchange.turn - 1], exchange.answers


class Completion(Frozen):
    """What a policy answered to one conversation."""

    text: Text
    num_prompt_tokens: int = Field(ge=0)
    num_completion_tokens: int = Field(ge=0)
    finish_reason: Literal["stop", "length"]


class Turn(Frozen):
    """One turn of a trajectory: completion, kernel and what the judge said. A training sample is exactly one turn."""

    task_id: str
    trajectory: int = Field(ge=0)
    turn: int = Field(ge=1)
    """Counted from 1, as in the paper."""
    completion: str
    kernel: Kernel | None
    summary: str = ""
    outcome: Outcome | None
    """None only after a harness failure: no verdict, no score, retried on resume."""
    reason: str | None = None
    feedback: str = ""
    """The evaluation as later turns see it."""
    verdict_key: str | None = None
    speedup: Annotated[float, Field(gt=0)] | None = None
    num_prompt_tokens: int = Field(ge=0)
    num_completion_tokens: int = Field(ge=0)
    finish_reason: Literal["stop", "length"]

    @model_validator(mode="after")
    def _speedup_iff_correct(self) -> Self:
        if (self.speedup is not None) != (self.outcome is Outcome.CORRECT):
            raise ValueError(f"speedup {self.speedup} does not fit outcome {self.outcome}")
        return self
