"""Plain requests to /classify, answered straight from their connection.

A text in a JSON body that comes at once: most requests are like that, and for a short document the
framework's way (a scope, a task, messages, objects for request and response) takes longer than all
else but its run. What is less plain, or wrong in any way, goes the framework's way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError

from service.errors import DeadlinePassed, ServiceError
from service.http.body import decode_json
from service.http.door import CLASSIFY_PATH, Door, Headers
from service.http.problems import error_response
from service.http.request import CLIENT_LEFT, RequestRecord, begin_record, note_end
from service.http.routes import answer_json, choose_options
from service.http.schemas import ClassifyRequest, parse_request
from service.service import Service
from service.text.merge import Options

_URL = CLASSIFY_PATH.encode()
_JSON = b"application/json"
_NOT_PLAIN = frozenset((b"content-encoding", b"transfer-encoding", b"expect", b"upgrade"))

#: Takes an answer's status, headers and body, and whether the connection stays open.
Send = Callable[[int, bytes, bytes, bool], None]


def header_lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Headers as HTTP writes them."""
    return b"".join(b"%s: %s\r\n" % header for header in headers)


class PlainRequests:
    """Tells plain requests from others, and begins to answer them."""

    def __init__(self, service: Service, door: Door) -> None:
        self.service, self.door = service, door

    def takes(self, method: bytes, url: bytes, headers: Headers) -> bool:
        """Whether a request with such a head is plain; its body may still show that it is not."""
        if url != _URL or method != b"POST" or not _NOT_PLAIN.isdisjoint(headers):
            return False
        size = headers.get(b"content-length", b"")
        if len(size) > 9 or not size.isdigit() or headers.get(b"content-type", _JSON) != _JSON:
            return False
        try:
            self.door.check("POST", CLASSIFY_PATH, headers)
            return self.service.running.pipeline.reader.surely_fits(int(size))
        except ServiceError:
            return False

    def begin(
        self, headers: Headers, body: bytes, loop: asyncio.AbstractEventLoop, send: Send
    ) -> Exchange | None:
        """Queue a body's text; None, with nothing done, when that cannot be answered from here."""
        service = self.service
        record = begin_record(headers.get(b"x-request-id", b"").decode("latin-1"))
        exchange = None
        try:
            service.hold(record, len(body))
            wanted = parse_request(ClassifyRequest, decode_json(body))
            if isinstance(wanted.input, str):
                options = choose_options(wanted, service)
                exchange = Exchange(service, record, wanted.input, options, loop, send)
        except Exception:  # noqa: S110 - comes again on the framework's way, which tells it
            pass
        if exchange is None:
            service.release(record)
        return exchange


class Exchange:
    """A plain request that is queued. Its connection treats it as uvicorn treats a cycle."""

    message_event = asyncio.Event()  # set when the caller has left; nobody waits for that here

    def __init__(
        self,
        service: Service,
        record: RequestRecord,
        text: str,
        options: Options,
        loop: asyncio.AbstractEventLoop,
        send: Send,
    ) -> None:
        self.response_complete = self.disconnected = False
        self.keep_alive = True
        self._service, self._record, self._loop, self._send = service, record, loop, send
        self._seconds = options.timeout
        self._pipeline = service.running.pipeline
        self._begun = self._pipeline.begin(text, options, self._tell_loop)
        self._timer = loop.call_later(self._seconds, self._expire)
        service.in_flight += 1

    def leave(self) -> None:
        """The caller has hung up."""
        if not self.response_complete:
            self._pipeline.drop(self._begun)
            self._end(CLIENT_LEFT)

    def _tell_loop(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._finish)

    def _finish(self) -> None:
        if self.response_complete:
            return
        try:
            answer = self._pipeline.finish(self._begun)
        except CancelledError:  # the scheduler is closed
            self._end(CLIENT_LEFT)
        except Exception as error:  # whatever it was, the caller must know
            self._refuse(error)
        else:
            body = answer_json(self._service, self._record, answer).encode()
            headers = b"content-length: %d\r\ncontent-type: %s\r\n" % (len(body), _JSON)
            self._respond(200, headers, body)

    def _expire(self) -> None:
        self._pipeline.drop(self._begun)
        self._refuse(DeadlinePassed(self._seconds))

    def _refuse(self, error: Exception) -> None:
        response = error_response(error, CLASSIFY_PATH)
        self._respond(
            response.status_code, header_lines(response.raw_headers), bytes(response.body)
        )

    def _respond(self, status: int, headers: bytes, body: bytes) -> None:
        self._end(status)
        headers = b"%sx-request-id: %s\r\n" % (headers, self._record.id.encode())
        self._send(status, headers, body, self.keep_alive)

    def _end(self, status: int) -> None:
        self.response_complete = True
        self._timer.cancel()
        self._service.in_flight -= 1
        self._service.release(self._record)
        note_end(self._service.metrics, self._record, "POST", CLASSIFY_PATH, status, log=True)
