"""From a policy's configuration to a policy."""

from __future__ import annotations

import hashlib
from pathlib import Path

from kevin.core.config import PolicyConfig
from kevin.core.types import canonical_json, digest
from kevin.policy.protocol import Policy

_HASHED_BYTES = 256 * 2**20


def load_policy(name: str, config: PolicyConfig) -> Policy:
    """Load weights, open the recording or prepare the endpoint.

    Raises:
        DataError: a model folder or recording that is missing or damaged.
        UsageError: a model that cannot chat, a key that is not set.
        PolicyError: the backend is not installed or the model cannot be loaded.
    """
    if config.backend == "transformers":
        from kevin.policy.transformers import load_transformers

        return load_transformers(name, config)
    if config.backend == "vllm":
        from kevin.policy.vllm import VllmPolicy

        return VllmPolicy(name, config)
    if config.backend == "openai":
        from kevin.policy.openai import OpenAIPolicy

        return OpenAIPolicy(name, config)
    from kevin.policy.replay import ReplayPolicy

    return ReplayPolicy(name, Path(config.model))


def policy_fingerprint(config: PolicyConfig) -> str:
    """Changes when a policy's answers may change: its configuration and the files of a local model or recording.

    Files over 256 MiB count by size only.
    """
    settings = config.model_dump(mode="json", exclude={"label", "max_concurrency", "timeout_s"})
    path = Path(config.model)
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else []
    parts = [f"{p.relative_to(path)} {_content(p)}" for p in files]
    return digest("policy", canonical_json(settings), *parts)


def _content(path: Path) -> str:
    if path.stat().st_size > _HASHED_BYTES:
        return f"size {path.stat().st_size}"
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()
