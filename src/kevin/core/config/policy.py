"""Models that write kernels."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from kevin.core.types import Settings

_OF_THE_POLICY = {"model": "model", "dtype": "dtype", "gpu_memory_utilization": "memory_share"}
"""Arguments of vLLM's engine for which there are keys of their own."""


class PolicyConfig(Settings):
    backend: Literal["transformers", "vllm", "openai", "replay"] = "transformers"
    """What runs the model; ``replay`` reads recorded completions."""
    model: str
    """A local path, a hub id, the endpoint's model name, or the recorded completions (a file or a runs/ folder, see
    docs/own-model.md). What this study makes: ``<results>/base_model`` and ``<results>/policies/<run>``;
    ``<results>`` stands for its folder."""
    revision: str | None = Field(default=None, pattern=r"^[0-9a-f]{40}$")
    """Commit of a hub id, all 40 digits: a hub's model may change under its name. Without one it is refused, and the
    message tells the newest."""
    random_shapes: str | None = None
    """A config.json: random weights in its shapes in place of ``model``, and answers of the kernel writer in place of
    theirs. Such a study is a rehearsal (docs/coder.md), and ``report.miniature`` says so."""
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
    draft_tokens: int = Field(default=0, ge=0, le=64)
    """``vllm`` only: tokens that are drafted from earlier answers and checked in one pass of the model. Answers are
    distributed as without drafts, and come several times faster where kernels repeat each other; 0: none."""
    engine: dict[str, Any] = Field(default={})
    """``vllm`` only: further arguments of ``vllm.LLM``, e.g. ``{tensor_parallel_size: 8, max_model_len: 16384}``."""
    template: dict[str, bool | int | float | str] = Field(default={})
    """Variables of the model's chat template, e.g. ``{enable_thinking: false}`` for one that thinks unless it is told
    not to. What is trained from this policy keeps them; an ``openai`` endpoint gets them as ``chat_template_kwargs``.
    """
    label: str | None = None
    """Name in tables and figures; the key of the policy when absent."""
    seed_of: str | None = None
    """Key of the policy that this one is another seed of: curves draw the mean of both, tables have rows
    of each and of all."""
    max_prompt_tokens: int | None = Field(default=None, ge=1)
    """In place of ``rollout.max_prompt_tokens``, also for what is trained from this policy."""
    max_response_tokens: int | None = Field(default=None, ge=1)
    """In place of ``rollout.max_response_tokens``."""

    @property
    def has_files(self) -> bool:
        """Whether ``model`` may be files of this machine, and not only a name."""
        return self.backend != "openai"

    def identity(self) -> dict[str, Any]:
        """The settings that its answers depend on, lengths apart, as JSON values."""
        keys = {
            "backend",
            "model",
            "dtype",
            *(key for key in ("revision", "engine", "draft_tokens", "template") if getattr(self, key)),
        }
        return self.model_dump(mode="json", include=keys)

    @model_validator(mode="after")
    def _names_arguments_once(self) -> Self:
        for key in ("engine", "draft_tokens"):
            if getattr(self, key) and self.backend != "vllm":
                raise ValueError(f"{key}: of backend vllm alone, and this one's is {self.backend}")
        if self.revision and self.backend not in ("transformers", "vllm"):
            raise ValueError(f"revision: of backends transformers and vllm, and this one's is {self.backend}")
        if self.draft_tokens and "speculative_config" in self.engine:
            raise ValueError("engine.speculative_config: draft_tokens is set too, and there is one way of drafting")
        if taken := sorted(self.engine.keys() & _OF_THE_POLICY.keys()):
            raise ValueError(f"engine.{taken[0]}: set {_OF_THE_POLICY[taken[0]]} of the policy instead")
        return self
