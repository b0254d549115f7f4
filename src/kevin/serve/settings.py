"""How the server is set up. Nothing here can change a verdict."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from kevin.core.config import JudgePoolConfig, RewardConfig
from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Frozen


class ServeSettings(Frozen):
    protocol: JudgeProtocol
    store: Path
    """Folder of the verdict store; what stands in it is answered without judging."""
    pool: JudgePoolConfig = JudgePoolConfig()
    reward: RewardConfig = RewardConfig()
    """What ``score`` is made of."""
    token: str | None = None
    """Asked of every client; none when None."""
    references: frozenset[str] | None = None
    """Digests of the tasks that may be asked for; any reference when None."""
    max_pairs: int = Field(default=256, ge=1)
    """Pairs that are waited for at once, those in work among them; more are turned away with 429."""
    max_body_bytes: int = Field(default=8 << 20, ge=1024)
    body_timeout_s: float = Field(default=60.0, gt=0)
    """Within which a request's body must have arrived."""
    grace_s: float = Field(default=60.0, ge=0)
    """After a signal to stop, kernels in work are finished within this."""
    reference_timeout_s: float = Field(default=60.0, gt=0)
    """As of `kevin.Judge`."""
