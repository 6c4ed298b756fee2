"""Connections: they must not dawdle, answer plain requests, and refuse when the queue is full.

What they do on their own spares the framework's way. Under overload nearly all requests are
refused, so a refusal must cost next to nothing: it is written as soon as the head is there, before
there is a task, a route or a body.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from functools import lru_cache
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.errors import Overloaded, ServiceError
from service.http.door import CLASSIFY_PATH, Door, Headers
from service.http.plain_requests import Exchange, PlainRequests, header_lines
from service.http.problems import problem_response
from service.http.request import UNMATCHED, begin_record, note_end
from service.service import Service

SMALL_BYTES = 1 << 20  # a refused body of at most this is read to its end
_MOST_HEAD_BYTES = 65_536
_SOON = 0.25  # seconds within which a plain request's body comes
_STATUS_LINES = {
    status.value: b"HTTP/1.1 %d %s\r\n" % (status, status.phrase.encode()) for status in HTTPStatus
}
_TOO_MUCH_HEAD = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"connection: close\r\ncontent-length: 0\r\n\r\n"
)


def protocol(service: Service) -> type[HttpToolsProtocol]:
    """What speaks HTTP on each connection to this service."""
    door, seconds = Door(service), service.settings.body_seconds
    plain = PlainRequests(service, door)

    class Connection(HttpToolsProtocol):
        """Closes when a request head is too large or takes too long; refuses when full.

        Answers plain requests itself: uvicorn hears of them only when they turn out not to be so.
        """

        _timer: asyncio.TimerHandle | None = None  # for a head, or a body that is awaited here
        _in_head = True
        _head_bytes = 0
        _refused = False  # whether what now arrives is a refused request's body
        _parts: list[bytes] | None = None  # of the body of a request that seems plain
        _exchange: Exchange | None = None  # the latest plain request

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._start_timer()

        def connection_lost(self, exc: Exception | None) -> None:
            self._hand_over()
            self._stop_timer()
            if self._exchange is not None:
                self._exchange.leave()
            super().connection_lost(exc)

        def shutdown(self) -> None:
            self._hand_over()
            super().shutdown()

        def data_received(self, data: bytes) -> None:
            self._head_bytes += len(data)
            super().data_received(data)
            if self._parts is not None:
                if self._timer is None:
                    self._timer = self.loop.call_later(_SOON, self._hand_over)
            elif self._in_head and self._head_bytes > _MOST_HEAD_BYTES:
                self.transport.write(_TOO_MUCH_HEAD)
                self.transport.close()
            elif (self._in_head or self._refused) and self._timer is None:
                self._start_timer()

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._stop_timer()
            self._in_head, self._head_bytes = True, 0

        def on_headers_complete(self) -> None:
            self._in_head = False
            self._stop_timer()
            if self.cycle is None or self.cycle.response_complete:  # else that is answered first
                method, headers = self.parser.get_method(), dict(self.headers)
                refusal = self._refusal(method, headers)
                if refusal is not None:
                    self._refused = True
                    self.transport.write(refusal)
                    return
                if plain.takes(method, self.url, headers) and self.parser.should_keep_alive():
                    self._parts = []
                    return
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            if self._parts is not None:
                self._parts.append(body)
            elif not self._refused:
                super().on_body(body)

        def on_message_complete(self) -> None:
            if self._parts is not None:
                body = b"".join(self._parts)
                exchange = plain.begin(dict(self.headers), body, self.loop, self._send)
                if exchange is not None:
                    self._stop_timer()
                    self._parts, self._exchange = None, exchange
                    self.cycle = exchange  # type: ignore[assignment]
                    return
                self._hand_over()
            if not self._refused:
                super().on_message_complete()
                return
            self._refused = False
            self._stop_timer()
            self.on_response_complete()

        def _hand_over(self) -> None:
            """Let the framework have a request that is not plain after all, or slow to come."""
            parts, self._parts = self._parts, None
            if parts is None:
                return
            self._stop_timer()
            super().on_headers_complete()
            for part in parts:
                super().on_body(part)

        def _send(self, status: int, headers: bytes, body: bytes, keep_alive: bool) -> None:
            """Send the answer to a plain request."""
            usual = header_lines(self.server_state.default_headers)
            if not keep_alive:
                usual += b"connection: close\r\n"
            self.transport.write(b"%s%s%s\r\n%s" % (_STATUS_LINES[status], usual, headers, body))
            if not keep_alive:
                self.transport.close()
            self.on_response_complete()

        def _refusal(self, method: bytes, headers: Headers) -> bytes | None:
            """A whole answer to a request that can be refused here and now, else None."""
            if method != b"POST" or not door.is_full(headers):
                return None
            if not _is_small(headers) or not self.parser.should_keep_alive():
                return None
            path = self.url.partition(b"?")[0].decode("ascii", "replace")
            try:
                door.check("POST", path, headers)
            except Overloaded as error:
                record = begin_record(headers.get(b"x-request-id", b"").decode("latin-1"))
                route = path if path == CLASSIFY_PATH else UNMATCHED
                note_end(service.metrics, record, "POST", route, 429, log=True)
                own = [*self.server_state.default_headers, (b"x-request-id", record.id.encode())]
                return _written(error, path, own)
            except ServiceError:
                return None  # told in full by the application
            return None

        def _start_timer(self) -> None:
            self._timer = self.loop.call_later(seconds, self.transport.close)

        def _stop_timer(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    return Connection


def _is_small(headers: Headers) -> bool:
    """Whether the body is sure to come, and soon over."""
    size = headers.get(b"content-length", b"")
    waits = b"expect" in headers or b"transfer-encoding" in headers or b"upgrade" in headers
    return size.isdigit() and int(size) <= SMALL_BYTES and not waits


def _written(error: Overloaded, path: str, own_headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """A refusal as bytes; all but a few of its headers are made only once."""
    head, body = _head_and_body(max(1, math.ceil(error.retry_after)), path.startswith("/v2/"))
    return b"%s%s\r\n%s" % (head, header_lines(own_headers), body)


@lru_cache(maxsize=256)
def _head_and_body(retry_after: int, v2: bool) -> tuple[bytes, bytes]:
    response = problem_response(Overloaded(retry_after), "/v2/" if v2 else CLASSIFY_PATH)
    head = b"HTTP/1.1 429 Too Many Requests\r\n" + header_lines(response.raw_headers)
    return head, bytes(response.body)
