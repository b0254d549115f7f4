"""Any OpenAI-compatible endpoint: a vLLM or SGLang server, llama.cpp, or a vendor."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from typing import Any

from kevin.core.config import PolicyConfig
from kevin.core.errors import PolicyError, UsageError
from kevin.core.fences import THINK_CLOSE, THINK_OPEN
from kevin.core.types import Completion, Conversation
from kevin.policy.interface import OnCompletion, Request, Sampling, estimate_tokens, estimated_tokens, request_seed

logger = logging.getLogger(__name__)


class RubbishError(Exception):
    """The endpoint answered, but not with a chat completion."""


class OpenAIPolicy:
    """One call per answer, ``max_concurrency`` at a time. Timeouts, refused connections, 408, 409, 429 and 5xx are
    retried with exponential backoff (Retry-After is respected), and so are answers that are no chat completion.
    """

    def __init__(self, name: str, config: PolicyConfig, *, num_retries: int = 5, max_backoff_s: float = 30.0) -> None:
        """The key is read from OPENAI_API_KEY; own servers (``base_url``) need none."""
        key = os.environ.get("OPENAI_API_KEY")
        if key is None and config.base_url is None:
            raise UsageError(f"policy {name}: set OPENAI_API_KEY, or policies.{name}.base_url to a server of your own")
        self.name, self.config = name, config
        self.num_retries, self.max_backoff_s = num_retries, max_backoff_s
        self._key = key or "none"

    def count_tokens(self, conversation: Conversation) -> int:
        """An estimate from characters: endpoints offer no tokenizer."""
        return estimated_tokens(conversation)

    def complete(
        self, requests: Sequence[Request], sampling: Sampling, on_completion: OnCompletion | None = None
    ) -> list[Completion | None]:
        if not requests:
            return []
        try:
            return asyncio.run(self._complete_all(requests, sampling, on_completion))
        except ExceptionGroup as group:
            raise group.exceptions[0] from None

    def close(self) -> None:
        """Nothing is held between calls."""

    async def _complete_all(
        self, requests: Sequence[Request], sampling: Sampling, on_completion: OnCompletion | None
    ) -> list[Completion | None]:
        """The first definite failure cancels what is still open: a dead endpoint is found out once, not 512 times."""
        from openai import AsyncOpenAI

        slots = asyncio.Semaphore(self.config.max_concurrency)
        completions: list[Completion | None] = [None] * len(requests)

        async def one(client: AsyncOpenAI, i: int) -> None:
            async with slots:
                completions[i] = completion = await self._complete_one(client, requests[i], sampling)
            if on_completion is not None:
                on_completion(i, completion)

        options: dict[str, Any] = {"api_key": self._key, "timeout": self.config.timeout_s, "max_retries": 0}
        async with (
            AsyncOpenAI(base_url=self.config.base_url, **options) as client,
            asyncio.TaskGroup() as group,
        ):
            for i in range(len(requests)):
                group.create_task(one(client, i))
        return completions

    async def _complete_one(self, client: Any, request: Request, sampling: Sampling) -> Completion:
        from openai import APIConnectionError, APIResponseValidationError, APIStatusError

        limit = "max_tokens" if self.config.base_url else "max_completion_tokens"
        arguments = {
            "model": self.config.model,
            "messages": [m.model_dump() for m in request.conversation],
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": request_seed(sampling, request),
            limit: sampling.max_tokens,
            **({"extra_body": {"chat_template_kwargs": self.config.template}} if self.config.template else {}),
        }
        for attempt in range(1, self.num_retries + 2):
            wait_s = min(0.5 * 2 ** (attempt - 1), self.max_backoff_s)
            try:
                answer = await client.chat.completions.create(**arguments)
                return self._completion(answer, request)
            except APIStatusError as e:
                if e.status_code not in (408, 409, 429) and e.status_code < 500:
                    raise PolicyError(self._refusal(e.status_code, str(e))) from None
                problem = f"status {e.status_code}"
                wait_s = _retry_after_s(e.response.headers) or wait_s
            except APIConnectionError as e:
                problem = (
                    str(e.__cause__ or e) if "timed out" not in str(e) else f"no answer in {self.config.timeout_s} s"
                )
            except (RubbishError, APIResponseValidationError, ValueError) as e:
                problem = f"not a chat completion ({e})"
            if attempt <= self.num_retries:
                logger.info("%s: %s; attempt %d follows in %.1f s", self._where, problem, attempt + 1, wait_s)
                await asyncio.sleep(wait_s)
        raise PolicyError(
            f"{self._where}: {problem}, after {self.num_retries + 1} attempts. Check that the server runs and serves "
            f"this model, raise policies.{self.name}.timeout_s or lower max_concurrency; answers so far are kept"
        )

    def _completion(self, answer: Any, request: Request) -> Completion:
        choices = getattr(answer, "choices", None)
        if not choices:
            raise RubbishError("no choices" if choices is not None else f"got {type(answer).__name__}")
        message = getattr(choices[0], "message", None)
        content = getattr(message, "content", None)
        thought = getattr(message, "reasoning_content", None) or getattr(message, "reasoning", None)
        if message is None or not isinstance(content, str | None) or not isinstance(thought, str | None):
            raise RubbishError("no text in its message")
        cut = choices[0].finish_reason == "length"
        text = content or ""
        if thought:
            closing = f"\n{THINK_CLOSE}\n\n" if text or not cut else ""
            text = f"{THINK_OPEN}\n{thought.strip()}{closing}{text}"
        usage = getattr(answer, "usage", None)
        return Completion(
            text=text,
            num_prompt_tokens=_known(usage, "prompt_tokens", self.count_tokens(request.conversation)),
            num_completion_tokens=_known(usage, "completion_tokens", estimate_tokens(text)),
            finish_reason="length" if cut else "stop",
        )

    @property
    def _where(self) -> str:
        return f"policy {self.name}, model {self.config.model} at {self.config.base_url or 'api.openai.com'}"

    def _refusal(self, status: int, message: str) -> str:
        fixes = {
            401: "set OPENAI_API_KEY to a valid key",
            403: "the key has no right to this model",
            404: f"check policies.{self.name}.base_url (it usually ends in /v1) and the model's name",
        }
        lengths = f"policies.{self.name}.max_prompt_tokens and max_response_tokens"
        fix = fixes.get(
            status, f"check the policy's model and the rollout's sampling, and lower {lengths} to its context"
        )
        return f"{self._where}: refused with status {status}: {message[:300]}. Fix: {fix}"


def _known(usage: Any, field: str, estimate: int) -> int:
    value = getattr(usage, field, None)
    return value if isinstance(value, int) and value >= 0 else estimate


def _retry_after_s(headers: Any) -> float | None:
    try:
        seconds = float(headers.get("retry-after", ""))
    except ValueError:
        return None
    return seconds if 0 <= seconds <= 120 else None
