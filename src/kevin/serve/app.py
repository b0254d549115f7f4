"""The server: from a signal-free start to a graceful stop, and its routes.

``POST /v1/judge``, ``POST /v1/batch``, ``GET /health``, ``GET /metrics``; all but the last speak JSON. How many may be
connected, and who has to go when more come, is settled here too.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import resource
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from aiohttp import web

import kevin
from kevin.core.errors import UsageError
from kevin.core.types import canonical_json
from kevin.serve.desk import Desk
from kevin.serve.messages import Asked, BatchRequest, PairRequest, Refusal, asked_for, parse
from kevin.serve.settings import ServeSettings

log = logging.getLogger(__name__)

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUSY = web.AppKey("busy", set[web.RequestHandler])
"""Connections on which a request is being answered."""

IDLE_S = 30.0
"""A connection on which nothing was asked for that long is closed."""
_MOST_FILES, _OWN_FILES = 1 << 16, 192
"""Open files that are asked for at most, and that are the server's own: the judge's process, the store, the log."""
_MOST, _FEWEST = 4096, 16
_LOOK_S = 0.2
_SAY_S = 60.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def serve(settings: ServeSettings, host: str, port: int, on_ready: Callable[[str], None]) -> None:
    """Serve until SIGTERM: then new pairs are turned away, those in work are finished and answered.

    Args:
        port: 0 takes a free one.
        on_ready: told of the address once requests are answered.

    Raises:
        UsageError: the address cannot be had.
        HarnessError: the judge cannot start.
    """
    # who sends no HTTP is told so, and need not be logged
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.set_exception_handler(OutOfFiles())
    limit = most_connections()
    desk = Desk(settings)
    app = make_app(settings, desk)
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


# --- routes -------------------------------------------------------------------------------------------------------


def make_app(settings: ServeSettings, desk: Desk) -> web.Application:
    """The application; ``desk`` is started and closed by the caller."""
    service = _Service(settings, desk)
    app = web.Application(client_max_size=settings.max_body_bytes, middlewares=[service.middleware])
    app[BUSY] = service.busy
    app.add_routes(
        [
            web.post("/v1/judge", service.judge),
            web.post("/v1/batch", service.batch),
            web.get("/health", service.health),
            web.get("/metrics", service.metrics),
        ]
    )
    return app


class _Service:
    def __init__(self, settings: ServeSettings, desk: Desk) -> None:
        self._settings, self._desk = settings, desk
        self.busy: set[web.RequestHandler] = set()
        self._token = settings.token.encode() if settings.token is not None else None

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Counts, asks for the token, and gives every failure its status and a JSON body."""
        connection = request.protocol
        self.busy.add(connection)
        try:
            return await self._answered(request, handler)
        finally:
            self.busy.discard(connection)

    async def _answered(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        route = request.match_info.route.resource
        name = route.canonical if route is not None else "other"
        try:
            self._require_token(request, name)
            response = await handler(request)
        except Refusal as e:
            response = _refused(e)
        except web.HTTPRequestEntityTooLarge:
            limit = self._settings.max_body_bytes
            response = _refused(Refusal(413, "body_too_large", f"a body may have {limit} bytes at most"))
            response.force_close()
        except web.HTTPException as e:
            response = _refused(Refusal(e.status, "bad_request", f"{request.method} {request.path}: {e.reason}"))
            response.headers.update({k: v for k, v in e.headers.items() if k == "Allow"})
        except Exception as e:
            log.exception("kevin: internal error")
            response = _refused(Refusal(500, "internal_error", f"{type(e).__name__}: {e}"))
        self._desk.metrics.requests.labels(name, response.status).inc()
        return response

    def _require_token(self, request: web.Request, route: str) -> None:
        if self._token is None or route == "/health":
            return
        given = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        if not hmac.compare_digest(given, b"Bearer " + self._token):
            raise Refusal(401, "wrong_token", "send the server's token: Authorization: Bearer <token>")

    async def judge(self, request: web.Request) -> web.Response:
        [answer] = await self._answers([parse(PairRequest, await self._body(request))])
        return _refused(answer) if isinstance(answer, Refusal) else _json(answer)

    async def batch(self, request: web.Request) -> web.Response:
        answers = await self._answers(parse(BatchRequest, await self._body(request)).pairs)
        texts = [answer.body if isinstance(answer, Refusal) else answer for answer in answers]
        return _json(f'{{"results":[{",".join(texts)}]}}')

    async def _answers(self, requests: Sequence[PairRequest]) -> list[str | Refusal]:
        """As of the desk. What can be no pair is told so by itself, and the others are judged."""
        found = [asked_for(request, self._settings.protocol) for request in requests]
        pairs = [(one.task, one.kernel) for one in found if isinstance(one, Asked) and one.kernel is not None]
        judged = iter(await self._desk.answers(pairs))
        return [self._answer(one, judged) if isinstance(one, Asked) else one for one in found]

    def _answer(self, asked: Asked, judged: Iterator[str | Refusal]) -> str | Refusal:
        """The next of what was judged, or the verdict on no kernel; with what was seen of an answer."""
        try:
            told = next(judged) if asked.kernel is not None else self._desk.no_kernel(asked.task, asked.problem)
        except Refusal as e:
            return e
        if asked.seen is None or isinstance(told, Refusal):
            return told
        return f'{told[:-1]},"seen":{canonical_json(asked.seen)}}}'

    async def _body(self, request: web.Request) -> bytes:
        limit = self._settings.max_body_bytes
        if request.content_length is not None and request.content_length > limit:
            raise web.HTTPRequestEntityTooLarge(limit, request.content_length)
        try:
            async with asyncio.timeout(self._settings.body_timeout_s):
                return await request.read()
        except TimeoutError:
            raise Refusal(408, "body_timeout", "the body did not arrive in time") from None
        except web.RequestPayloadError:
            raise Refusal(400, "bad_request", "the body is cut short, or not in its Content-Encoding") from None

    async def health(self, request: web.Request) -> web.Response:
        """200 while pairs are judged; 503 while the judge starts again, or the server stops."""
        told = {
            "status": "ok" if self._desk.is_well else "stopping" if self._desk.is_stopping else "starting",
            "version": kevin.__version__,
            "api_version": kevin.API_VERSION,
            "device": self._desk.device_name,
            "protocol_digest": self._settings.protocol.digest,
            "open_pairs": self._desk.num_open,
            "max_pairs": self._settings.max_pairs,
        }
        return _json(canonical_json(told), status=200 if self._desk.is_well else 503)

    async def metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=self._desk.metrics.text(), headers={"Content-Type": _METRICS_TYPE})


def _json(text: str, status: int = 200) -> web.Response:
    return web.Response(body=text.encode(errors="backslashreplace"), status=status, content_type="application/json")


def _refused(refusal: Refusal) -> web.Response:
    response = _json(refusal.body, refusal.status)
    if refusal.retry_after_s is not None:
        response.headers["Retry-After"] = str(refusal.retry_after_s)
    if refusal.status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response
