"""What stands around every request: id, keys, draining, a full queue, counting, one log line.

Pure ASGI: nothing here buffers a body, and a caller's hanging up stays visible.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import ServiceError
from service.http.connections import SMALL_BYTES
from service.http.door import OPEN_PATHS, Door, Headers
from service.http.problems import error_response, problem_response
from service.http.request import CLIENT_LEFT, UNMATCHED, begin_record, note_end
from service.service import Service

_LINGER_SECONDS = 2.0

Endpoint = Callable[[Request], Awaitable[Response]]


class Edge:
    """The outermost layer of the application.

    Requests to the `direct` paths, by POST, go to their endpoints without a detour through the
    framework, which takes longer than all else that is done for a short document but its run.
    """

    def __init__(self, app: ASGIApp, service: Service, direct: Mapping[str, Endpoint]) -> None:
        self.app = app
        self.service = service
        self.direct = direct
        self.door = Door(service)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, note what became of it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        method, path, headers = scope["method"], scope["path"], dict(scope["headers"])
        record = begin_record(headers.get(b"x-request-id", b"").decode("latin-1"))
        scope.setdefault("state", {})["record"] = record
        exchange = _Exchange(receive, send, headers, record.id, self.service.settings.body_seconds)
        counted = path not in OPEN_PATHS
        direct = self.direct.get(path) if method == "POST" else None
        self.service.in_flight += counted
        try:
            self.door.check(method, path, headers)
            if direct is None:
                await self.app(scope, exchange.receive, exchange.send)
            else:
                scope["app"] = self.app
                await _answer(direct, scope, exchange)
        except ServiceError as error:
            response = problem_response(error, path)
            await response(scope, exchange.receive, exchange.send)
        finally:
            self.service.in_flight -= counted
            self.service.release(record)
            route = path if direct else getattr(scope.get("route"), "path", UNMATCHED)
            metrics = self.service.metrics
            note_end(metrics, record, method, route, exchange.status, log=counted)


async def _answer(endpoint: Endpoint, scope: Scope, exchange: _Exchange) -> None:
    try:
        response = await endpoint(Request(scope, exchange.receive))
    except Exception as error:  # whatever it was, the caller must know
        response = error_response(error, scope["path"])
    await response(scope, exchange.receive, exchange.send)


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
        length = headers.get(b"content-length", b"0")
        self._body_done = length == b"0" and b"transfer-encoding" not in headers
        self._small = length.isdigit() and 0 < int(length) <= SMALL_BYTES
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
            headers = [*message["headers"], (b"x-request-id", self._request_id.encode())]
            if not self._body_done and not self._small and self.status >= 400:
                headers = [header for header in headers if header[0] != b"connection"]
                headers.append((b"connection", b"close"))
            message = {**message, "headers": headers}
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
