"""Kevin: a reproducible study of multi-turn RL for generating GPU kernels, and the judge of kernels that it rests on.

The judge as a library: ``from kevin import Judge`` (docs/api.md). Data flows one way: ``core`` <- ``tasks`` <-
``judge`` <- ``rollout`` <- ``train``, and ``core`` <- ``report``; ``judge`` <- ``api`` <- ``serve``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kevin.api.judge import API_VERSION, Judge, Judged
    from kevin.core.errors import DataError, DeviceError, HarnessError, KevinError, TaskError, UsageError
    from kevin.core.protocol import JudgeProtocol
    from kevin.core.types import Kernel, Outcome, Task, Verdict

__version__ = "0.1.0"

_HOMES = {
    "kevin.api.judge": ("API_VERSION", "Judge", "Judged"),
    "kevin.core.errors": ("DataError", "DeviceError", "HarnessError", "KevinError", "TaskError", "UsageError"),
    "kevin.core.protocol": ("JudgeProtocol",),
    "kevin.core.types": ("Kernel", "Outcome", "Task", "Verdict"),
}
__all__ = [
    "API_VERSION",
    "DataError",
    "DeviceError",
    "HarnessError",
    "Judge",
    "JudgeProtocol",
    "Judged",
    "Kernel",
    "KevinError",
    "Outcome",
    "Task",
    "TaskError",
    "UsageError",
    "Verdict",
    "__version__",
]


def __getattr__(name: str) -> Any:
    """The public names, imported when they are first used: ``import kevin`` itself costs nothing."""
    from importlib import import_module

    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'kevin' has no attribute {name!r}")
