"""Routes: ``POST /v1/judge``, ``POST /v1/batch``, ``GET /health``, ``GET /metrics``; all but the last speak JSON."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence

from aiohttp import web

import kevin
from kevin.core.types import canonical_json
from kevin.serve.desk import Desk
from kevin.serve.messages import Asked, BatchRequest, PairRequest, Refusal, asked_for, parse
from kevin.serve.metrics import CONTENT_TYPE, Metrics
from kevin.serve.settings import ServeSettings

log = logging.getLogger(__name__)

BUSY = web.AppKey("busy", set[web.RequestHandler])
"""Connections on which a request is being answered."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def make_app(settings: ServeSettings, desk: Desk, metrics: Metrics) -> web.Application:
    """The application; ``desk`` is started and closed by the caller."""
    service = _Service(settings, desk, metrics)
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
    def __init__(self, settings: ServeSettings, desk: Desk, metrics: Metrics) -> None:
        self._settings, self._desk, self._metrics = settings, desk, metrics
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
        self._metrics.requests.labels(name, response.status).inc()
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
        found = [self._asked(request) for request in requests]
        pairs = [(one.task, one.kernel) for one in found if isinstance(one, Asked) and one.kernel is not None]
        judged = iter(await self._desk.answers(pairs))
        return [self._answer(one, judged) if isinstance(one, Asked) else one for one in found]

    def _asked(self, request: PairRequest) -> Asked | Refusal:
        try:
            return asked_for(request, self._settings.protocol)
        except Refusal as e:
            return e

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
        return web.Response(body=self._metrics.text(), headers={"Content-Type": CONTENT_TYPE})


def _json(text: str, status: int = 200) -> web.Response:
    return web.Response(body=text.encode(errors="backslashreplace"), status=status, content_type="application/json")


def _refused(refusal: Refusal) -> web.Response:
    response = _json(refusal.body, refusal.status)
    if refusal.retry_after_s is not None:
        response.headers["Retry-After"] = str(refusal.retry_after_s)
    if refusal.status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response
