"""Requests and answers, version 1: JSON, unknown fields refused."""

from __future__ import annotations

from typing import Literal, NamedTuple, Self, TypeVar

from pydantic import Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from kevin.api.pairs import make_task
from kevin.core.candidate import DialectChoice, check_text, make_kernel, refuse_file_name
from kevin.core.config import RewardConfig
from kevin.core.dialogue import FENCES, parse_completion, past_answer
from kevin.core.errors import HarnessError, KevinError, UsageError
from kevin.core.protocol import JudgeProtocol
from kevin.core.reward import configured_score
from kevin.core.texts import parse_json
from kevin.core.types import Frozen, Kernel, Language, Task, Verdict, canonical_json

MAX_BATCH = 1024

Request = TypeVar("Request", "PairRequest", "BatchRequest")


class PairRequest(Frozen):
    """Body of ``POST /v1/judge``."""

    reference: str
    """Text of a module in KernelBench's format."""
    kernel: str | None = None
    """Text of the candidate."""
    answer: str | None = None
    """In its place: what a model answered, of which the candidate is a code block."""
    dialect: Literal["auto", "c_abi", "load_inline"] = "auto"
    language: Literal["cpp", "cuda"] | None = None
    """The device's when absent."""

    @model_validator(mode="after")
    def _is_a_pair(self) -> Self:
        if not self.reference:  # a bound on the field would refuse what is no text there, and with it all pairs
            raise PydanticCustomError("empty", "reference: empty")
        if self.kernel is None and self.answer is None:
            raise PydanticCustomError("missing", "kernel: Field required, or answer in its place")
        if self.kernel is not None and self.answer is not None:
            raise PydanticCustomError("both", "answer: a kernel is given too, and only one of them can be judged")
        return self


class BatchRequest(Frozen):
    """Body of ``POST /v1/batch``."""

    pairs: tuple[PairRequest, ...] = Field(min_length=1, max_length=MAX_BATCH)


class Refusal(Exception):
    """An answer other than a verdict.

    Args:
        status: of HTTP.
        code: stable, for programs.
        message: for people: what is wrong, and what helps.
        retry_after_s: when it makes sense to ask again; None where it does not.
    """

    def __init__(self, status: int, code: str, message: str, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.retry_after_s = status, code, message, retry_after_s

    @property
    def body(self) -> str:
        """The answer's JSON, also that of one pair of a batch."""
        error = {"status": self.status, "code": self.code, "message": self.message}
        return canonical_json({"error": error | ({"retry_after_s": self.retry_after_s} if self.retry_after_s else {})})


class Asked(NamedTuple):
    """What a request asks for."""

    task: Task
    kernel: Kernel | None
    """None where an answer holds none; ``problem`` says why."""
    problem: str = ""
    seen: str | None = None
    """What later turns of a rollout see of an answer: kernel and summary, never the chain of thought."""


def parse(kind: type[Request], body: bytes) -> Request:
    """Raises Refusal that names the field. What is no text within a field, half of a surrogate pair, is let through."""
    try:
        return kind.model_validate(parse_json(body))
    except ValidationError as e:
        first = e.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        own = {"extra_forbidden": "unknown field", "model_type": "Input should be an object"}
        what = own.get(first["type"], first["msg"])
        raise Refusal(400, "bad_request", f"{where}: {what}" if where else what) from None
    except (ValueError, RecursionError) as e:
        raise Refusal(400, "bad_request", f"Invalid JSON: {e}") from None


def asked_for(request: PairRequest, protocol: JudgeProtocol) -> Asked | Refusal:
    """A refusal of texts that are none, and of a kernel that does not fit the server's device."""
    dialect: DialectChoice = request.dialect
    language: Language | None = request.language
    seen = None
    try:
        for field in ("reference", "kernel"):
            refuse_file_name(getattr(request, field) or "", field)
        task, source = make_task(request.reference), request.kernel
        if request.answer is not None:
            parsed = parse_completion(check_text(request.answer, "answer"), dialect, language or protocol.language)
            if parsed.kernel is None:
                return Asked(task, None, parsed.problem or "the answer holds no kernel", past_answer(parsed, ""))
            source, dialect = parsed.kernel.source, parsed.kernel.dialect
            seen = past_answer(parsed, FENCES[dialect, parsed.kernel.language])
        return Asked(task, make_kernel(source or "", "", dialect, protocol, language), seen=seen)
    except UsageError as e:
        return Refusal(400, "bad_request", str(e))


def refusal_of(error: KevinError) -> Refusal:
    """What a client is told of an error of the judge."""
    if isinstance(error, HarnessError):
        return Refusal(503, "no_verdict", f"no verdict was formed: {error}", retry_after_s=5)
    return Refusal(422, "unusable_reference", str(error))


def answer_of(verdict: Verdict, reward: RewardConfig) -> str:
    """The JSON of a verdict, with what follows from it: ``speedup`` (None unless correct) and ``score``."""
    points = configured_score(verdict.outcome, verdict.speedup, reward)
    follows = canonical_json({"score": points, "speedup": verdict.speedup})
    return f'{{"verdict":{verdict.model_dump_json()},{follows[1:]}'
