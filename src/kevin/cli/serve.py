"""`kevin serve`: the judge behind HTTP."""

from __future__ import annotations

import functools
import logging
from pathlib import Path
from typing import Annotated

import typer

from kevin.cli.options import JUDGING_PANEL, DeviceOption, configuration, file, folder, load_config, require_extra

log = logging.getLogger(__name__)

_STORE = Path("~/.cache/kevin/verdicts")
_AFTER_GRACE_S = 15.0
"""For ending the judge's processes once all requests are answered."""
_WHO = "Who may ask"
_limit = functools.partial(typer.Option, rich_help_panel="Limits")


def serve(
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8421,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    token_file: Annotated[
        Path | None,
        file("Holds the token that clients send; made if it is not there. Or set KEVIN_TOKEN.", panel=_WHO),
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
        configuration(
            "Judge, schedule and score as this configuration's sections judge, pool and reward say.",
            panel=JUDGING_PANEL,
        ),
    ] = None,
    queue: Annotated[int, _limit(min=1, help="Pairs waited for at once; more get 429.")] = 256,
    max_body_mb: Annotated[int, _limit("--max-body", metavar="MB", min=1, help="Largest body of a request.")] = 8,
    reference_timeout: Annotated[
        float, _limit(metavar="SECONDS", min=1, help="Time limit for looking into one.")
    ] = 60.0,
    grace: Annotated[float, _limit(metavar="SECONDS", min=0, help="To finish kernels in work when stopped.")] = 60.0,
) -> None:
    """Serve verdicts and scores over HTTP, as rewards for training elsewhere: docs/serve.md.

    References are trusted code and run as this user; kernels are not, and are sandboxed as by `kevin judge`.
    """
    import asyncio

    from kevin.api.pairs import make_protocol
    from kevin.cli.supervisor import end_gracefully

    require_extra("serve", "kevin serve", "aiohttp", "prometheus_client")
    from kevin.core.config import JudgePoolConfig, RewardConfig
    from kevin.serve.app import serve as run
    from kevin.serve.settings import ServeSettings, read_token, task_digests, usable_store

    study = load_config(config, plays=False) if config else None
    pool = study.pool if study else JudgePoolConfig()
    settings = ServeSettings(
        protocol=make_protocol(study.judge if study else None, rules="default", device=device),
        store=usable_store(store, pool),
        pool=pool,
        reward=study.reward if study else RewardConfig(),
        token=read_token(token_file, host, no_token),
        references=task_digests(references) if references else None,
        max_pairs=queue,
        max_body_bytes=max_body_mb << 20,
        grace_s=grace,
        reference_timeout_s=reference_timeout,
    )
    end_gracefully(grace + _AFTER_GRACE_S)
    asyncio.run(run(settings, host, port, on_ready=lambda url: log.info("kevin serve: judging on %s", url)))
