"""What stands around every request: id, keys, draining, a full queue, counting, one log line.

Pure ASGI: nothing here buffers a body, and a caller's hanging up stays visible.
"""

from __future__ import annotations

import asyncio
import hmac
import random
import re
import time

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import ServiceError, Unauthorized
from service.logs import request_line
from service.problems import CLIENT_LEFT, problem_response
from service.state import RequestRecord, Service

_SAFE_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_OPEN_PATHS = frozenset({"/healthz", "/readyz", "/metrics", "/v2/health/live", "/v2/health/ready"})
_WORK_PATHS = ("/classify", "/infer")
_LINGER_SECONDS = 2.0
_SMALL_BYTES = 1 << 20  # a refused body of at most this is read to its end


class Edge:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app = app
        self.service = service
        self._keys = [key.encode() for key in service.settings.api_keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, note what became of it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        request_id = given if _SAFE_ID.fullmatch(given) else f"{random.getrandbits(64):016x}"
        record = RequestRecord(request_id, time.monotonic())
        scope.setdefault("state", {})["record"] = record
        exchange = _Exchange(receive, send, headers, record.id, self.service.settings.body_seconds)
        counted = scope["path"] not in _OPEN_PATHS
        self.service.in_flight += counted
        try:
            if counted:
                self._check(scope, headers)
            await self.app(scope, exchange.receive, exchange.send)
        except ServiceError as error:
            response = problem_response(error, scope["path"])
            await response(scope, exchange.receive, exchange.send)
        finally:
            self.service.in_flight -= counted
            self.service.release(record)
            self._note(scope, record, exchange.status)

    def _check(self, scope: Scope, headers: Headers) -> None:
        """Refuse early, before any work: callers without a key, and all when there is no room."""
        if self._keys:
            sent = headers.get("x-api-key") or headers.get("authorization", "")
            key = sent.removeprefix("Bearer ").strip().encode("utf-8", "replace")
            matches = [hmac.compare_digest(key, known) for known in self._keys]
            if not any(matches):
                raise Unauthorized
        self.service.check_draining()
        if scope["method"] == "POST" and scope["path"].endswith(_WORK_PATHS):
            self.service.running.scheduler.refuse_if_full()

    def _note(self, scope: Scope, record: RequestRecord, status: int) -> None:
        metrics, seconds = self.service.metrics, time.monotonic() - record.started
        route = getattr(scope.get("route"), "path", "unmatched")
        metrics.requests.labels(route, str(status)).inc()
        metrics.request_seconds.labels(route).observe(seconds)
        if status == 429:
            metrics.rejected.inc()
        elif status == CLIENT_LEFT:
            metrics.disconnected.inc()
        if scope["path"] not in _OPEN_PATHS:
            request_line(
                id=record.id,
                method=scope["method"],
                route=route,
                status=status,
                texts=record.texts,
                tokens=record.tokens,
                **record.timings,
                total_ms=round(seconds * 1000, 3),
            )


class _Exchange:
    """A request's two directions, and how far each has come.

    When a request is refused before its body has been read, the answer goes out at once, and
    what is still on its way is read and thrown away for a moment: closing at once would make the
    caller's system discard the answer. The connection then closes, unless the body is small.
    """

    def __init__(
        self, receive: Receive, send: Send, headers: Headers, request_id: str, seconds: float
    ) -> None:
        self._receive, self._send, self._request_id = receive, send, request_id
        self._linger = min(seconds, _LINGER_SECONDS)
        length = headers.get("content-length", "0")
        self._body_done = length == "0" and "transfer-encoding" not in headers
        self._small = length.isdigit() and 0 < int(length) <= _SMALL_BYTES
        self.status = CLIENT_LEFT

    async def receive(self) -> Message:
        """Pass a message on, noting the end of the body."""
        message = await self._receive()
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            self._body_done = True
        return message

    async def send(self, message: Message) -> None:
        """Pass a message on, with the request's id among the headers."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["x-request-id"] = self._request_id
            if not self._body_done and not self._small and self.status >= 400:
                headers["connection"] = "close"
        elif not self._body_done and not message.get("more_body", False) and self.status >= 400:
            await self._send({**message, "more_body": True})
            await self._discard_body()
            message = {"type": "http.response.body", "body": b"", "more_body": False}
        await self._send(message)

    async def _discard_body(self) -> None:
        try:
            async with asyncio.timeout(self._linger):
                while not self._body_done:
                    await self.receive()
        except TimeoutError:
            return
