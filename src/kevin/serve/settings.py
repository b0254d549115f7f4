"""How the server is set up, and what it refuses at its start. Nothing here can change a verdict."""

from __future__ import annotations

import logging
import os
import secrets
import tempfile
from pathlib import Path

from pydantic import Field

from kevin.api.pairs import make_task
from kevin.core.config import JudgePoolConfig, RewardConfig
from kevin.core.errors import UsageError
from kevin.core.protocol import JudgeProtocol
from kevin.core.texts import read_text
from kevin.core.types import Frozen
from kevin.judge.compile import compilers

log = logging.getLogger(__name__)

TOKEN = "KEVIN_TOKEN"
"""Environment variable with the token that clients send."""
_AROUND = "\ufeff \t\r\n"
"""What an editor, or a shell that reads a file, leaves around a token."""
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


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


def read_token(file: Path | None, host: str, no_token: bool) -> str | None:
    """What clients must send. Raises UsageError where nothing is said, or what is said is not safe."""
    given = os.environ.pop(TOKEN, "").strip(_AROUND)  # candidates' processes have no use for it
    if no_token:
        if file or given:
            raise UsageError(f"--no-token contradicts --token-file and {TOKEN}; give one of them")
        if host not in _LOOPBACK:
            raise UsageError(f"--no-token would let anybody who reaches {host} run code here; give --token-file FILE")
        return None
    if file is not None:
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch(mode=0o600)
            file.write_text(secrets.token_urlsafe(32) + "\n")
            log.info("%s: a new token, for clients to send", file)
        given = read_text(file).strip()
        if len(given.split()) > 1:
            raise UsageError(
                f"{file}: no token, which is one word; name another file, which is made if it is not there"
            )
    if not given:
        where = f"{file}: empty" if file else "no token"
        raise UsageError(f"{where}; give --token-file FILE (made if it is not there), or set {TOKEN}, or --no-token")
    return given


def usable_store(store: Path, pool: JudgePoolConfig) -> Path:
    """The store's folder. Raises UsageError or SandboxError where verdicts cannot be kept in it, or kernels built."""
    try:
        store = store.expanduser()
        store.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=store):
            pass
    except (OSError, RuntimeError) as e:  # the latter where the user has no home
        why = e.strerror if isinstance(e, OSError) else e
        raise UsageError(f"{store}: verdicts cannot be kept there ({why}); name another folder with --store") from None
    if pool.scheduler is None:
        compilers.require_loadable(store.resolve())
    return store


def task_digests(folder: Path) -> frozenset[str]:
    """Of the tasks below a folder. Raises UsageError where there is none."""
    found = frozenset(make_task(read_text(path)).digest for path in folder.rglob("*.py"))
    if not found:
        raise UsageError(f"{folder}: holds no .py file; --references names a folder of references")
    return found
