"""Where a vLLM engine finds what earlier ones compiled: most of its start is compiling, the same for each policy."""

from __future__ import annotations

import copy
import functools
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)


@contextmanager
def shared_programs() -> Iterator[None]:
    """Engines made meanwhile take what was compiled for any model of the same configuration.

    vLLM files what it compiles under the model's path, too. But weights are arguments of it: it also takes what it
    compiled for a folder before its weights changed. An engine's process that is not forked from this one files as
    ever.

    Triton's kernels lie where Triton puts them, for all processes of a user, from now on: PyTorch moves them into the
    folder of the first program that it compiles in a process, and the kernel for sampling was compiled anew in every
    engine, for 18 s. ``TRITON_CACHE_DIR`` and ``TRITON_HOME`` of the user's environment stay as they are.
    """
    home = os.environ.get("TRITON_HOME") or os.path.expanduser("~")  # noqa: PTH111  Path's raises where there is none
    os.environ.setdefault("TRITON_CACHE_DIR", str(Path(home, ".triton", "cache")))
    model_config = _hashed_class()
    if model_config is None:
        yield
        return
    by_path = model_config.compute_hash

    @functools.wraps(by_path)
    def by_configuration(self: Any) -> str:
        try:
            return str(by_path(_nameless(self)))
        except Exception as e:  # of another version's insides: an engine must not fail for it
            log.debug("programs are not shared between models: %s", e)
            return str(by_path(self))

    model_config.compute_hash = by_configuration
    try:
        yield
    finally:
        model_config.compute_hash = by_path


def _hashed_class() -> Any:
    """vLLM's class whose hash is in the key of what it compiles; None where this version has none such."""
    try:
        found = import_module("vllm.config.model").ModelConfig
    except (ImportError, AttributeError) as e:
        log.debug("programs are not shared between models: %s", e)
        return None
    return found if hasattr(found, "compute_hash") else None


def _nameless(model_config: Any) -> Any:
    """A copy that does not say where its weights lie."""
    nameless = copy.copy(model_config)
    nameless.model = ""
    for name in ("hf_config", "hf_text_config"):
        config = copy.copy(getattr(model_config, name))
        config._name_or_path = ""
        setattr(nameless, name, config)
    return nameless
