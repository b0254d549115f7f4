"""Models that write kernels."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from kevin.core.types import Frozen


class PolicyConfig(Frozen):
    backend: Literal["transformers", "vllm", "openai", "replay"] = "transformers"
    """What runs the model; ``replay`` reads recorded completions."""
    model: str
    """A local path, a hub id, the endpoint's model name, or the recorded completions (a file or a runs/ folder). What
    this study makes: ``<results>/base_model``, ``<results>/policies/<run>``, and ``<results>/first_school`` where a
    second school follows; ``<results>`` stands for its folder."""
    base_url: str | None = None
    """``openai`` only: e.g. ``http://localhost:8000/v1``. The key is read from the environment (OPENAI_API_KEY)."""
    max_concurrency: int = Field(default=16, ge=1)
    """``openai`` only: requests in flight."""
    timeout_s: float = Field(default=600, gt=0)
    """``openai`` only: of one request."""
    dtype: Literal["float32", "bfloat16", "auto"] = "float32"
    """Data type of the weights; ``auto`` is the one that the model was saved in."""
    memory_share: float = Field(default=0.9, gt=0, lt=1)
    """``vllm`` only: of a GPU's memory. Where the judge has the same GPU, its tensors need the rest."""
    label: str | None = None
    """Name in tables and figures; the key of the policy when absent."""
    seed_of: str | None = None
    """Key of the policy that this one is another seed of: curves draw the mean of both, tables have rows
    of each and of all."""
    max_prompt_tokens: int | None = Field(default=None, ge=1)
    """In place of ``rollout.max_prompt_tokens``, also for what is trained from this policy."""
    max_response_tokens: int | None = Field(default=None, ge=1)
    """In place of ``rollout.max_response_tokens``."""
    max_feedback_chars: int | None = Field(default=None, ge=50)
    """In place of ``rollout.max_feedback_chars``."""

    @property
    def has_files(self) -> bool:
        """Whether ``model`` may be files of this machine, and not only a name."""
        return self.backend != "openai"

    def identity(self) -> dict[str, Any]:
        """The settings that its answers depend on, lengths apart, as JSON values."""
        return self.model_dump(mode="json", include={"backend", "model", "dtype"})
