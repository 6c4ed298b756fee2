"""What a connection may do: uvicorn's h11 protocol with limits of time and memory.

uvicorn answers requests in order and stops reading from a caller who sends more than is parsed.
It has no time limit on a head, on a body that nobody reads any more or on an answer that the
caller does not read. Those are here, with a count of all that a connection makes the service keep.
`tests/service/http/test_connection.py` pins what this relies on in uvicorn and h11.
"""

from __future__ import annotations

import asyncio
import math
import select
import time
from asyncio import Protocol
from collections.abc import Iterable
from typing import Any

import h11
from h11._headers import Headers
from h11._receivebuffer import ReceiveBuffer
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol
from uvicorn.server import ServerState

from service.errors import (
    HeadTooLarge,
    MalformedRequest,
    Overloaded,
    ServiceError,
    TooManyConnections,
)
from service.http.problems import problem_response
from service.http.request import UNMATCHED, RequestContext
from service.service import Service

MOST_HEAD_BYTES = 65_536
MOST_UNPARSED_BYTES = 65_536  # of requests behind one that is being answered; then reading stops
KEEP_ALIVE_SECONDS = 75.0
MOST_SURPLUS = 8  # connections over the limit that are refused at leisure
LINGER_SECONDS = 2.0  # how long the rest of a body is thrown away, so that the answer arrives
UNREAD_SECONDS = 60.0  # in which a caller must take some of an answer
SLOWEST_READER = 1024  # bytes a second, on average over that time
CHECK_SECONDS = 0.5  # how often connections are checked

_HUNG_UP = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR

#: Fields of which a request has one: of two, some servers take the first and others the last.
ONCE = frozenset(
    (
        b"authorization",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"expect",
        b"inference-header-content-length",
        b"transfer-encoding",
        b"x-api-key",
        b"x-request-id",
    )
)


def watch(connections: Iterable[Protocol], loop: asyncio.AbstractEventLoop) -> None:
    """Check all connections now, and again and again."""
    now = time.monotonic()
    for connection in list(connections):
        if isinstance(connection, Connection):
            connection.check(now)
    loop.call_later(CHECK_SECONDS, watch, connections, loop)


class _Heads(ReceiveBuffer):
    """h11's buffer, which refuses heads that have a field twice (h11 itself merges some)."""

    def maybe_extract_lines(self) -> list[bytearray] | None:
        """The lines of a head once it is complete."""
        lines: list[bytearray] | None = super().maybe_extract_lines()
        if lines is not None:
            names = [bytes(line.partition(b":")[0]).lower() for line in lines]
            if len(set(names)) < len(names):
                for name in ONCE.intersection(names):
                    if names.count(name) > 1:
                        raise h11.RemoteProtocolError(f"{name.decode()} is given twice")
        return lines


class _Flow(FlowControl):
    """uvicorn's flow control, which does not read on while much waits to be parsed."""

    def __init__(self, transport: asyncio.Transport, connection: Connection) -> None:
        super().__init__(transport)
        self._connection = connection

    def resume_reading(self) -> None:
        """Read on, if there is room."""
        if self.read_paused and self._connection.has_room:
            super().resume_reading()


class _Transport:
    """What uvicorn has of a transport; when it reads and closes is the connection's decision."""

    def __init__(self, transport: asyncio.Transport, connection: Connection) -> None:
        self.write, self.write_eof = transport.write, transport.write_eof
        self.get_extra_info = transport.get_extra_info
        self.get_write_buffer_size = transport.get_write_buffer_size
        self.abort, self.close_now = transport.abort, transport.close
        self.close = connection.end
        self._transport, self._connection = transport, connection

    def resume_reading(self) -> None:
        """Read on, if there is room."""
        self._connection.flow.resume_reading()

    def is_closing(self) -> bool:
        """Whether nothing more will be sent."""
        return self._connection.ends or self._transport.is_closing()


class Connection(H11Protocol):
    """One caller's connection."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, {**app_state, "connection": self}, _loop)
        self.conn._receive_buffer = _Heads()
        self.service: Service = app_state["service"]
        self._patience = self.service.settings.body_seconds
        self.request: RequestContext | None = None  # the one that is being answered
        self.is_lost = False
        self.ends = False  # only what is written is still sent, and what comes is thrown away
        self._ignores = False  # what comes is thrown away, though an answer is still due
        self._phase: tuple[str, object] = ("idle", None)  # what is waited for, in which request
        self._deadline = math.inf
        self._write_deadline = math.inf
        self._unwritten = 0  # bytes, when the write deadline was set
        self._kept_bytes = 0  # as the service has counted them

    # What uvicorn calls.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a new connection, unless there are too many."""
        self._transport = _Transport(transport, self)
        super().connection_made(self._transport)  # type: ignore[arg-type]
        self.flow = _Flow(transport, self)
        self._phase, self._deadline = ("head", None), time.monotonic() + self._patience
        surplus = len(self.connections) - self.service.most_connections
        if surplus > 0:
            self._refuse(TooManyConnections())
        if surplus > MOST_SURPLUS:  # no descriptor is left to wait until the answer is read
            self._transport.close_now()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give back what was kept; drop what was being done."""
        super().connection_lost(exc)
        if self.request is not None and self._is_answering:
            self.request.leave()
        self.request = None
        self._unset_keepalive_if_required()
        self.is_lost = True
        self.count()

    def data_received(self, data: bytes) -> None:
        """Parse what came."""
        if not self.ends and not self._ignores:
            super().data_received(data)
            self._look()

    def on_response_complete(self) -> None:
        """Go on with the next request."""
        super().on_response_complete()
        self._look()

    def pause_writing(self) -> None:
        """Await the caller's reading."""
        super().pause_writing()
        self._await_reader(time.monotonic())

    def resume_writing(self) -> None:
        """Write on."""
        super().resume_writing()
        self._write_deadline = math.inf
        if self.ends:
            self._await_reader(time.monotonic())

    def handle_events(self) -> None:
        """Begin to answer what is parsed.

        While only few requests have come behind the one that is being answered, reading goes on:
        that is how a caller who hangs up is noticed.
        """
        super().handle_events()
        if not self._is_answering or len(self.cycle.body) <= HIGH_WATER_LIMIT:
            self.flow.resume_reading()

    @property
    def has_room(self) -> bool:
        """Whether more may be read: few bytes wait to be parsed, or none ever will be."""
        return self.ends or len(self.conn._receive_buffer) <= MOST_UNPARSED_BYTES

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        """Refuse what is not HTTP; an answer that is due before it comes first."""
        if self._is_answering and not self.cycle.more_body:
            self._ignores, self.cycle.keep_alive = True, False
        elif self._phase[0] != "answer" and len(self.conn._receive_buffer) > MOST_HEAD_BYTES:
            self._refuse(HeadTooLarge(f"a head may have {MOST_HEAD_BYTES} bytes"))
        else:
            self._refuse(MalformedRequest("this is not HTTP, or a field is given twice"))

    def shutdown(self) -> None:
        """End the connection once its request is answered."""
        if self.ends:
            self._transport.abort()
        else:
            super().shutdown()

    def _should_upgrade(self) -> bool:
        return False  # an offer, which a server may ignore (RFC 9110, 7.8)

    def take_body(self) -> bytes | None:
        """The body of the request that is being answered, when all of it has come."""
        cycle = self.cycle
        if cycle.more_body:
            return None
        body, cycle.body = bytes(cycle.body), bytearray()
        self.count()
        return body

    async def answer(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        """Send a whole answer, as uvicorn's cycle does with one in parts."""
        if self.flow.write_paused:
            await self.flow.drain()
        cycle, conn = self.cycle, self.conn
        if cycle.disconnected:
            return
        cycle.response_started = cycle.response_complete = True
        self._transport.write(
            self._written(status, [*self.server_state.default_headers, *headers], body)
        )
        if conn.our_state is h11.MUST_CLOSE or not cycle.keep_alive:
            conn.send(h11.ConnectionClosed())
            self.end()
        cycle.on_response()

    def _written(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> bytes:
        # What h11 would check of names and values is right: they are ours, and in lower case.
        items = Headers([(name, name, value) for name, value in headers])
        phrase = STATUS_PHRASES[status]
        head = h11.Response(
            status_code=status, headers=items, http_version=b"1.1", reason=phrase, _parsed=True
        )
        if self.scope is not None and self.scope["method"] == "HEAD":
            body = b""
        send = self.conn.send
        parts = (send(head), send(h11.Data(data=body)), send(h11.EndOfMessage()))
        return b"".join(part for part in parts if part)

    # Limits.

    def _look(self) -> None:
        """See what is waited for now, and until when; a deadline is not reset by bytes."""
        state = self.conn.their_state
        if state is h11.IDLE:
            phase = "head" if self.conn._receive_buffer else "idle"
        elif state is h11.SEND_BODY and self.cycle.response_complete:
            phase = "rest"  # of a body that nobody reads
        else:
            phase = "answer"
        if phase == "answer":
            self._phase, self._deadline = (phase, self.cycle), math.inf
        elif (phase, self.cycle) != self._phase:
            seconds = KEEP_ALIVE_SECONDS if phase == "idle" else self._patience
            self._phase, self._deadline = (phase, self.cycle), time.monotonic() + seconds
        self.count()
        service = self.service
        if phase == "head" and service.held_bytes > service.settings.max_held_bytes:
            self._refuse(Overloaded(retry_after=1.0))

    def count(self) -> None:
        """Tell the service how many bytes wait here to be parsed, read or written."""
        kept = len(self.conn._receive_buffer) + self._transport.get_write_buffer_size()
        if self._is_answering:
            kept += len(self.cycle.body)
        if self.is_lost:
            kept = 0
        self.service.held_bytes += kept - self._kept_bytes
        self._kept_bytes = kept

    def _await_reader(self, now: float) -> None:
        self._unwritten = self._transport.get_write_buffer_size()
        self._write_deadline = now + UNREAD_SECONDS
        self.count()

    def check(self, now: float) -> None:
        """End the connection when its caller is too slow, or has left unseen."""
        if now >= self._deadline:
            if self.ends:
                self._transport.abort()
            else:
                self.end()
        elif now >= self._write_deadline:
            taken = self._unwritten - self._transport.get_write_buffer_size()
            if taken < SLOWEST_READER * UNREAD_SECONDS:
                self._transport.abort()
            else:
                self._await_reader(now)
        elif self.flow.read_paused and self._is_answering and self._has_hung_up():
            self._transport.abort()
        self.count()

    def end(self) -> None:
        """Close once what is written has been sent, and read.

        Closed at once while the caller still sends, its system would throw away the answer.
        """
        if self.ends:
            return
        self.ends = True
        self.conn._receive_buffer = _Heads()  # nothing more is parsed
        now = time.monotonic()
        their_state = self.conn.their_state
        if their_state in (h11.SEND_BODY, h11.ERROR) or self._ignores:
            self._deadline = now + LINGER_SECONDS
            self.flow.resume_reading()
            self._transport.write_eof()
        else:
            self._deadline = math.inf
            self._await_reader(now)
            self._transport.close_now()
        self.count()

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _has_hung_up(self) -> bool:
        """Whether the caller is gone, which no event tells while nothing is read."""
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), _HUNG_UP)
        return bool(poll.poll(0))

    def _refuse(self, error: ServiceError) -> None:
        """Answer what never becomes a request, unless an answer has begun; then end."""
        if self._is_answering:
            self.cycle.disconnected = True  # nobody needs what is being done for it
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            response = problem_response(error, "")
            headers = [*response.raw_headers, (b"connection", b"close")]
            self._transport.write(
                self._written(response.status_code, headers, bytes(response.body))
            )
            self.service.metrics.count_request(UNMATCHED, response.status_code, 0.0)
        self._ignores = True
        self.end()
