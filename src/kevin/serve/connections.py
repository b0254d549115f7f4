"""How many clients may be connected at once, and who has to go when more come: whoever asks for nothing."""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from typing import Any

from aiohttp import web

log = logging.getLogger(__name__)

IDLE_S = 30.0
"""A connection on which nothing was asked for that long is closed."""
_MOST_FILES, _OWN_FILES = 1 << 16, 192
"""Open files that are asked for at most, and that are the server's own: the judge's process, the store, the log."""
_MOST, _FEWEST = 4096, 16
_LOOK_S = 0.2
_SAY_S = 60.0


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
