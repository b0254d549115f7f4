"""Requests and answers, version 1: JSON, unknown fields refused."""

from __future__ import annotations

from typing import Literal, TypeVar

from pydantic import Field, ValidationError

from kevin.api.pairs import make_task
from kevin.core.candidate import DialectChoice, make_kernel
from kevin.core.config import RewardConfig
from kevin.core.errors import HarnessError, KevinError, UsageError
from kevin.core.protocol import JudgeProtocol
from kevin.core.reward import configured_score
from kevin.core.types import Frozen, Kernel, Language, Task, Verdict, canonical_json

MAX_BATCH = 1024

Request = TypeVar("Request", "PairRequest", "BatchRequest")


class PairRequest(Frozen):
    """Body of ``POST /v1/judge``."""

    reference: str = Field(min_length=1)
    """Text of a module in KernelBench's format."""
    kernel: str
    """Text of the candidate."""
    dialect: Literal["auto", "c_abi", "load_inline"] = "auto"
    language: Literal["cpp", "cuda"] | None = None
    """The device's when absent."""


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


def parse(kind: type[Request], body: bytes) -> Request:
    """Raises Refusal that names the field."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as e:
        first = e.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        what = "unknown field" if first["type"] == "extra_forbidden" else first["msg"]
        raise Refusal(400, "bad_request", f"{where}: {what}" if where else what) from None


def pair_of(request: PairRequest, protocol: JudgeProtocol) -> tuple[Task, Kernel]:
    """Raises Refusal for a kernel that does not fit the server's device."""
    dialect: DialectChoice = request.dialect
    language: Language | None = request.language
    try:
        return make_task(request.reference), make_kernel(request.kernel, "", dialect, protocol, language)
    except UsageError as e:
        raise Refusal(400, "bad_request", str(e)) from None


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
