"""From a policy's configuration to a policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kevin.core.config import PolicyConfig
from kevin.core.identity import content_digests
from kevin.policy.interface import Policy
from kevin.policy.rehearsal import rehearsed


def load_policy(name: str, config: PolicyConfig) -> Policy:
    """Load weights, open the recording or prepare the endpoint.

    Raises:
        DataError: a model folder or recording that is missing or damaged.
        UsageError: a model that cannot chat, a key that is not set.
        PolicyError: the backend is not installed or the model cannot be loaded.
    """
    if config.backend == "transformers":
        from kevin.policy.transformers import load_transformers

        return rehearsed(load_transformers(name, config), Path(config.model))
    if config.backend == "vllm":
        from kevin.policy.vllm import VllmPolicy

        return rehearsed(VllmPolicy(name, config), Path(config.model))
    if config.backend == "openai":
        from kevin.policy.openai import OpenAIPolicy

        return OpenAIPolicy(name, config)
    from kevin.policy.replay import ReplayPolicy

    return ReplayPolicy(name, Path(config.model))


def policy_identity(config: PolicyConfig) -> dict[str, Any]:
    """Changes when a policy's answers may: its settings, and digests of the files of a local model or recording.

    As nested JSON values, keys as in the configuration. Where an endpoint is and how it is asked is no part of it.
    """
    return {**config.identity(), "files": content_digests(Path(config.model)) if config.has_files else {}}
