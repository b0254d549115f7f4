"""`kevin serve`: the judge behind HTTP."""

from __future__ import annotations

import logging
import os
import secrets
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kevin.cli.options import JUDGING_PANEL, DeviceOption, file, folder, load_config
from kevin.core.errors import UsageError
from kevin.core.texts import read_text

if TYPE_CHECKING:
    from kevin.core.config import JudgePoolConfig
    from kevin.serve.settings import ServeSettings

log = logging.getLogger(__name__)

TOKEN = "KEVIN_TOKEN"
"""Environment variable with the token that clients send."""
_STORE = Path("~/.cache/kevin/verdicts")
_AROUND = "\ufeff \t\r\n"
"""What an editor, or a shell that reads a file, leaves around a token."""
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_AFTER_GRACE_S = 15.0
"""For ending the judge's processes once all requests are answered."""
_WHO, _LIMITS = "Who may ask", "Limits"


def serve(
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8421,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    token_file: Annotated[
        Path | None, file(f"Holds the token that clients send; made if it is not there. Or set {TOKEN}.", panel=_WHO)
    ] = None,
    no_token: Annotated[
        bool,
        typer.Option("--no-token", help="Answer every process of this machine; loopback only.", rich_help_panel=_WHO),
    ] = False,
    references: Annotated[
        Path | None, folder("Judge only references whose text is that of a .py file below this folder.", panel=_WHO)
    ] = None,
    device: DeviceOption = None,
    store: Annotated[Path, folder("Verdicts are kept here and reused.", panel=JUDGING_PANEL)] = _STORE,
    config: Annotated[
        list[Path] | None,
        file(
            "Judge, schedule and score as this configuration's sections judge, pool and reward say.",
            "--config",
            "-c",
            panel=JUDGING_PANEL,
        ),
    ] = None,
    queue: Annotated[
        int, typer.Option(min=1, help="Pairs waited for at once; more get 429.", rich_help_panel=_LIMITS)
    ] = 256,
    max_body_mb: Annotated[
        int, typer.Option("--max-body", metavar="MB", min=1, help="Largest body of a request.", rich_help_panel=_LIMITS)
    ] = 8,
    reference_timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=1, help="Time limit for looking into one.", rich_help_panel=_LIMITS)
    ] = 60.0,
    grace: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0, help="To finish kernels in work when stopped.", rich_help_panel=_LIMITS),
    ] = 60.0,
) -> None:
    """Serve verdicts and scores over HTTP, as rewards for training elsewhere: docs/serve.md.

    References are trusted code and run as this user; kernels are not, and are sandboxed as by `kevin judge`.
    """
    from kevin.api.pairs import make_protocol
    from kevin.cli.extras import require_extra
    from kevin.cli.supervisor import end_gracefully

    require_extra("serve", "kevin serve", "aiohttp", "prometheus_client")
    from kevin.core.config import JudgePoolConfig, RewardConfig
    from kevin.serve.run import serve as run
    from kevin.serve.settings import ServeSettings

    study = load_config(config) if config else None
    pool = study.pool if study else JudgePoolConfig()
    settings: ServeSettings = ServeSettings(
        protocol=make_protocol(study.judge if study else None, rules="default", device=device),
        store=_usable(store, pool),
        pool=pool,
        reward=study.reward if study else RewardConfig(),
        token=_token(token_file, host, no_token),
        references=_digests(references) if references else None,
        max_pairs=queue,
        max_body_bytes=max_body_mb << 20,
        grace_s=grace,
        reference_timeout_s=reference_timeout,
    )
    end_gracefully(grace + _AFTER_GRACE_S)
    run(settings, host, port, on_ready=lambda url: log.info("kevin serve: judging on %s", url))


def _token(file: Path | None, host: str, no_token: bool) -> str | None:
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
    if not given:
        where = f"{file}: empty" if file else "no token"
        raise UsageError(f"{where}; give --token-file FILE (made if it is not there), or set {TOKEN}, or --no-token")
    return given


def _usable(store: Path, pool: JudgePoolConfig) -> Path:
    """The store's folder. Raises UsageError or SandboxError where verdicts cannot be kept in it, or kernels built."""
    from kevin.judge.compile.compilers import require_loadable

    try:
        store = store.expanduser()
        store.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=store):
            pass
    except (OSError, RuntimeError) as e:  # the latter where the user has no home
        why = e.strerror if isinstance(e, OSError) else e
        raise UsageError(f"{store}: verdicts cannot be kept there ({why}); name another folder with --store") from None
    if pool.scheduler is None:
        require_loadable(store.resolve())
    return store


def _digests(folder: Path) -> frozenset[str]:
    """Of the tasks below a folder. Raises UsageError where there is none."""
    from kevin.api.pairs import make_task

    found = frozenset(make_task(read_text(path)).digest for path in folder.rglob("*.py"))
    if not found:
        raise UsageError(f"{folder}: holds no .py file; --references names a folder of references")
    return found
