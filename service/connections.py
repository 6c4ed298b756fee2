"""Connections: they must not dawdle, and when the queue is full they refuse on their own.

Under overload nearly all requests are refused, so a refusal must cost next to nothing: it is
written as soon as the head is there, before there is a task, a route or a body.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.door import CLASSIFY_PATH, Door, Headers
from service.errors import Overloaded, ServiceError
from service.problems import problem_response
from service.records import UNMATCHED, begin_record, note_end
from service.state import Service

SMALL_BYTES = 1 << 20  # a refused body of at most this is read to its end
_MOST_HEAD_BYTES = 65_536
_TOO_MUCH_HEAD = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"connection: close\r\ncontent-length: 0\r\n\r\n"
)


def protocol(service: Service) -> type[HttpToolsProtocol]:
    """What speaks HTTP on each connection to this service."""
    door, seconds = Door(service), service.settings.body_seconds

    class Connection(HttpToolsProtocol):
        """Closes when a request head is too large or takes too long; refuses when full."""

        _head_timer: asyncio.TimerHandle | None = None
        _head_bytes = 0
        _refused = False  # whether what now arrives is a refused request's body

        def connection_made(self, transport: Any) -> None:
            super().connection_made(cast("asyncio.Transport", _Gathering(transport, self.loop)))
            self._expect_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_timer()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            self._head_bytes += len(data)
            super().data_received(data)
            expects_head = self._head_timer is not None and not self._refused
            if expects_head and self._head_bytes > _MOST_HEAD_BYTES:
                self.transport.write(_TOO_MUCH_HEAD)
                self.transport.close()

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._expect_head()

        def on_headers_complete(self) -> None:
            refusal = self._refusal()
            if refusal is not None:
                self._refused = True  # the timer runs on, for the body
                self.transport.write(refusal)
                return
            self._stop_timer()
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            if not self._refused:
                super().on_body(body)

        def on_message_complete(self) -> None:
            if not self._refused:
                super().on_message_complete()
                return
            self._refused = False
            self._stop_timer()
            self.on_response_complete()

        def _refusal(self) -> bytes | None:
            """A whole answer to a request that can be refused here and now, else None."""
            if self.cycle is not None and not self.cycle.response_complete:
                return None  # those before it are answered first
            headers = dict(self.headers)
            if self.parser.get_method() != b"POST" or not door.is_full(headers):
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

        def _expect_head(self) -> None:
            self._stop_timer()
            self._head_bytes = 0
            self._head_timer = self.loop.call_later(seconds, self.transport.close)

        def _stop_timer(self) -> None:
            if self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None

    return Connection


class _Gathering:
    """A transport that sends what is written at one go: the head of an answer with its body.

    Each part on its own would be a call of the system, and would wake the caller twice.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._parts: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send with whatever else is written before the event loop's next turn."""
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)

    def close(self) -> None:
        """Send what is written, and close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._parts:
            parts, self._parts = self._parts, []
            self._transport.write(b"".join(parts))


def _is_small(headers: Headers) -> bool:
    """Whether the body is sure to come, and soon over."""
    size = headers.get(b"content-length", b"")
    waits = b"expect" in headers or b"transfer-encoding" in headers or b"upgrade" in headers
    return size.isdigit() and int(size) <= SMALL_BYTES and not waits


def _written(error: Overloaded, path: str, own_headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """A refusal as bytes; all but a few of its headers are made only once."""
    head, body = _head_and_body(max(1, math.ceil(error.retry_after)), path.startswith("/v2/"))
    own = b"".join(b"%s: %s\r\n" % header for header in own_headers)
    return b"%s%s\r\n%s" % (head, own, body)


@lru_cache(maxsize=256)
def _head_and_body(retry_after: int, v2: bool) -> tuple[bytes, bytes]:
    response = problem_response(Overloaded(retry_after), "/v2/" if v2 else CLASSIFY_PATH)
    lines = b"".join(b"%s: %s\r\n" % header for header in response.raw_headers)
    return b"HTTP/1.1 429 Too Many Requests\r\n" + lines, bytes(response.body)
