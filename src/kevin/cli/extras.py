"""What an install without extras lacks, in one sentence."""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from kevin.core.errors import UsageError

EXTRAS = {
    "slurm": ("dask_jobqueue", "snakemake_executor_plugin_slurm", "cryptography"),
    "gpu": ("vllm", "deepspeed"),
    "pretrained": ("gguf",),
    "serve": ("aiohttp", "prometheus_client"),
    "study": (
        "accelerate",
        "datasets",
        "jinja2",
        "matplotlib",
        "openai",
        "pandas",
        "peft",
        "pyarrow",
        "rapidfuzz",
        "seaborn",
        "snakemake",
        "tabulate",
        "tensorboard",
        "transformers",
        "trl",
    ),
}
"""Extras of pyproject.toml, and the modules that come with them alone."""


def missing_extra(error: ModuleNotFoundError) -> str | None:
    """The sentence for a module that an extra brings; None for any other."""
    module = (error.name or "").partition(".")[0]
    extra = next((name for name, modules in EXTRAS.items() if module in modules), None)
    return _sentence("this command", module, extra) if extra else None


def require_extra(extra: str, what: str, *modules: str) -> None:
    """Raises UsageError when one of the modules that ``what`` needs is not installed."""
    for module in modules:
        if find_spec(module) is None:
            raise UsageError(_sentence(what, module, extra))


def step(command: Callable[..., None]) -> Callable[..., None]:
    """A command of the study, which says at once that the study is not installed rather than after some work."""

    @functools.wraps(command)
    def checked(*args: Any, **options: Any) -> None:
        require_extra("study", "this command", *EXTRAS["study"])
        command(*args, **options)

    return checked


def _sentence(what: str, module: str, extra: str) -> str:
    return f"{what} needs {module}, which is not installed: pip install 'kevin-study[{extra}]'"
