"""From a signal-free start to a graceful stop; how many may be connected, and who has to go when more come."""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
import time
from collections.abc import Callable
from typing import Any

from aiohttp import web

from kevin.core.errors import UsageError
from kevin.serve.app import BUSY, make_app
from kevin.serve.desk import Desk
from kevin.serve.metrics import Metrics
from kevin.serve.settings import ServeSettings

log = logging.getLogger(__name__)


IDLE_S = 30.0
"""A connection on which nothing was asked for that long is closed."""
_MOST_FILES, _OWN_FILES = 1 << 16, 192
"""Open files that are asked for at most, and that are the server's own: the judge's process, the store, the log."""
_MOST, _FEWEST = 4096, 16
_LOOK_S = 0.2
_SAY_S = 60.0


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


def most_connections() -> int:
    """How many there may be, once this process may open as many files as the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return max(_FEWEST, min(_MOST, max(soft, most) - _OWN_FILES))


async def bound(server: web.Server, busy: set[web.RequestHandler], limit: int) -> None:
    """Close what is idle for longest while more than ``limit`` are connected. Runs until it is cancelled."""
    while True:
        connections = server.connections
        idle = [connection for connection in connections if connection not in busy]
        for connection in idle[: max(0, len(connections) - limit)]:
            connection.force_close()
        await asyncio.sleep(_LOOK_S)


class OutOfFiles:
    """An event loop's handler of errors that says once a minute that no connection can be taken, instead of always."""

    def __init__(self) -> None:
        self._said = -_SAY_S

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        message = context.get("message", "")
        if "_start_serving" in message:  # asyncio would accept again, and its socket was closed meanwhile
            return
        if "accept" not in message:
            loop.default_exception_handler(context)
        elif time.monotonic() - self._said >= _SAY_S:
            self._said = time.monotonic()
            log.warning("kevin serve: no further connection can be taken (%s); see ulimit -n", context.get("exception"))
