"""The one place where this package touches the judge's rooms: what it takes from them, under the names it uses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kevin.core.protocol import JudgeProtocol
from kevin.judge.compile.compilers import require_loadable
from kevin.judge.store import VerdictStore, verdict_key

if TYPE_CHECKING:
    from kevin.core.config import JudgePoolConfig
    from kevin.judge.pool.judge_pool import JudgePool

__all__ = ["VerdictStore", "open_pool", "require_loadable", "verdict_key"]


def open_pool(protocol: JudgeProtocol, store: Path, config: JudgePoolConfig) -> JudgePool:
    """The pool that judges; its workers start with the first kernel. Raises DeviceError where there is no device."""
    from kevin.judge.pool.judge_pool import JudgePool

    return JudgePool(protocol, store, config)
