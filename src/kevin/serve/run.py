"""From a signal-free start to a graceful stop."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable

from aiohttp import web

from kevin.core.errors import UsageError
from kevin.serve.app import BUSY, make_app
from kevin.serve.connections import IDLE_S, OutOfFiles, bound, most_connections
from kevin.serve.desk import Desk
from kevin.serve.metrics import Metrics
from kevin.serve.settings import ServeSettings

log = logging.getLogger(__name__)


def serve(settings: ServeSettings, host: str, port: int, on_ready: Callable[[str], None] = lambda url: None) -> None:
    """Serve until SIGTERM: then new pairs are turned away, those in work are finished and answered.

    Args:
        port: 0 takes a free one.
        on_ready: told of the address once requests are answered.

    Raises:
        UsageError: the address cannot be had.
        HarnessError: the judge cannot start.
    """
    asyncio.run(_serve(settings, host, port, on_ready))


async def _serve(settings: ServeSettings, host: str, port: int, on_ready: Callable[[str], None]) -> None:
    logging.getLogger("aiohttp.server").setLevel(
        logging.CRITICAL
    )  # who sends no HTTP is told so, and need not be logged
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.set_exception_handler(OutOfFiles())
    limit = most_connections()
    metrics = Metrics()
    desk = Desk(settings, metrics)
    app = make_app(settings, desk, metrics)
    runner = web.AppRunner(
        app,
        keepalive_timeout=IDLE_S,
        access_log=None,
        handler_cancellation=True,  # a client that goes away is not waited for
        shutdown_timeout=settings.grace_s,
    )
    await runner.setup()
    assert runner.server is not None, "it is set up"
    bounding = loop.create_task(bound(runner.server, app[BUSY], limit))
    try:
        await desk.start()
        site = web.TCPSite(runner, host, port)
        try:
            await site.start()
        except OSError as e:
            raise UsageError(f"{host}:{port}: {e.strerror}; give another --host or --port") from None
        on_ready(f"http://{host}:{runner.addresses[0][1]}")
        await stop.wait()
        log.info("stopping: %d pairs are finished first", desk.num_open)
        await desk.stop()
    finally:
        bounding.cancel()
        try:
            await runner.cleanup()
        finally:
            await desk.close()
