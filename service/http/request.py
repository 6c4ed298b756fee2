"""One object per request: who may come in, what it holds, whether its caller waits, its log line.

A refusal is decided here, from the request's head alone; `problems.py` renders it.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import random
import re
import time
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from service.errors import BodyTooLarge, Overloaded, Unauthorized
from service.logs import request_line, requests
from service.pipeline import Answer
from service.service import LARGE, Service

if TYPE_CHECKING:
    from service.http.connection import Connection

T = TypeVar("T")

CLIENT_LEFT = 499  # never sent; what the log and the metrics call a caller who hung up
UNMATCHED = "unmatched"  # the route of what no route takes
OPEN_PATHS = frozenset({"/healthz", "/readyz", "/metrics", "/v2/health/live", "/v2/health/ready"})
SMALL_BYTES = 1 << 20  # of a refused body the rest is read; of a larger one, the caller is cut off

_UNKNOWN = 1e9  # seconds of work: more than there will ever be room for
_WORK_PATHS = ("/classify", "/infer")
_SAFE_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class ClientLeft(Exception):  # noqa: N818
    """The caller hung up; there is nobody to answer."""


class StreamedResponse(Response):
    """A response that is sent in parts."""


class RequestContext(Request):
    """A request from its head to its log line."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, service: Service) -> None:
        super().__init__(scope, self._next_part, self._send_part)
        self.service = service
        self.fields: dict[bytes, bytes] = dict(scope["headers"])  # names in lower case
        self.path: str = scope["path"]
        self.route = UNMATCHED
        self.status = CLIENT_LEFT
        self.texts: int | None = None
        self.tokens = 0
        self._receive_next, self._send_next = receive, send
        self._connection: Connection = scope["state"]["connection"]
        self._connection.request = self
        self._caller_left = self._connection.is_lost  # before this began to be answered
        self._working: asyncio.Task[Any] | None = None
        self._started = time.monotonic()
        self.held_bytes = 0
        self._timings = [0.0, 0.0, 0.0]  # seconds: tokenize, queue, infer
        length = self.fields.get(b"content-length", b"0")
        self._body_ended = length == b"0" and b"transfer-encoding" not in self.fields
        self._is_small = length.isdigit() and len(length) < 9 and int(length) <= SMALL_BYTES
        self._counts = self.path not in OPEN_PATHS
        service.in_flight += self._counts
        given = self.fields.get(b"x-request-id", b"").decode("latin-1")
        self.id = given if _SAFE_ID.fullmatch(given) else f"{random.getrandbits(64):016x}"

    # Whether it may come in.

    def admit(self) -> None:
        """Raise what keeps the request out: no key, draining, or no room for it."""
        if not self._counts:
            return
        service = self.service
        if service.keys:
            sent = self.fields.get(b"x-api-key") or self.fields.get(b"authorization", b"")
            key = sent.removeprefix(b"Bearer ").strip()
            matches = [hmac.compare_digest(key, known) for known in service.keys]
            if not any(matches):
                raise Unauthorized
        if service.is_leaving:
            service.check_draining()
        if self.scope["method"] == "POST" and self.path.endswith(_WORK_PATHS):
            pipeline = service.pipeline or service.running.pipeline  # raises while it starts
            admission = pipeline.scheduler.admission
            if admission.short.backlog > admission.room:
                admission.refuse_if_full(self._most_work())

    def _most_work(self) -> float:
        """Predicted work of the heaviest document that the body can hold."""
        size = self.fields.get(b"content-length", b"")
        if b"content-encoding" in self.fields or not size.isdigit() or len(size) > 9:
            return _UNKNOWN
        return self.service.running.pipeline.most_work(int(size))

    # Its two directions.

    def field(self, name: bytes, default: str = "") -> str:
        """A field of its head, by its name in lower case."""
        value = self.fields.get(name)
        return default if value is None else value.decode("latin-1")

    def whole_body(self) -> bytes | None:
        """The body, when all of it has come and nothing must be unpacked; that is most of them."""
        if b"content-encoding" in self.fields:
            return None
        body, service = self._connection.take_body(), self.service
        if body is None:
            return None
        self._body_ended = True
        if len(body) > service.settings.max_body_bytes:
            raise BodyTooLarge(
                f"the body is larger than the {service.settings.max_body_bytes} bytes that are "
                "allowed"
            )
        if service.held_bytes + len(body) > service.settings.max_held_bytes:
            raise Overloaded(retry_after=1.0)
        service.held_bytes += len(body)
        self.held_bytes += len(body)
        return body

    async def _next_part(self) -> Message:
        message = await self._receive_next()
        self._connection.count()  # it keeps less now
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            self._body_ended = True
        return message

    async def _send_part(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = self._head(message["status"], message["headers"])
        await self._send_next(message)

    def _head(self, status: int, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        self.status = status
        headers.append((b"x-request-id", self.id.encode()))
        cut_off = not self._body_ended and not self._is_small
        if cut_off or self.service.is_leaving:
            # Closed once it is answered: nobody wants what may still come, or nobody is there.
            headers = [header for header in headers if header[0] != b"connection"]
            headers.append((b"connection", b"close"))
        return headers

    async def respond(self, response: Response) -> None:
        """Send a response."""
        if isinstance(response, StreamedResponse):
            await response(self.scope, self._next_part, self._send_part)
        else:
            head = self._head(response.status_code, response.raw_headers)
            await self._connection.answer(response.status_code, head, bytes(response.body))

    async def unless_caller_leaves(self, work: Coroutine[Any, Any, T]) -> T:
        """The work's result; when the caller hangs up first, the work is cancelled."""
        if self._caller_left:  # while its body was read and parsed
            work.close()
            raise ClientLeft
        task = self._working = asyncio.current_task()
        try:
            return await work
        except asyncio.CancelledError:
            if self._caller_left and task is not None and task.uncancel() == 0:
                raise ClientLeft from None
            raise
        finally:
            self._working = None

    def leave(self) -> None:
        """Note that the caller has hung up."""
        self._caller_left = True
        if self._working is not None:
            self._working.cancel()

    async def caller_leaves(self) -> NoReturn:
        """Raise ClientLeft when the caller hangs up; to be called once the body is read."""
        while (await self._next_part())["type"] != "http.disconnect":
            pass
        raise ClientLeft

    # What is noted of it.

    def note(self, answer: Answer) -> None:
        """Count an answer, and add it to the log line; a stream has one for each of its lines."""
        self.texts = (self.texts or 0) + len(answer.results)
        self.tokens += self.service.metrics.count_answer(answer)
        timings = self._timings
        timings[0] += answer.tokenize
        timings[1] += answer.queue
        timings[2] += answer.infer

    def end(self) -> None:
        """Count the request, write its line, give back what it held."""
        service, seconds = self.service, time.monotonic() - self._started
        service.in_flight -= self._counts
        if self.held_bytes >= LARGE:
            service.release(self)
        service.held_bytes -= self.held_bytes
        self.held_bytes = 0
        service.metrics.count_request(self.route, self.status, seconds)
        if self._counts and requests.isEnabledFor(logging.INFO):
            milliseconds = [round(1000 * each, 3) for each in (*self._timings, seconds)]
            names = ("tokenize_ms", "queue_ms", "infer_ms", "total_ms")
            timings = dict(zip(names, milliseconds, strict=True))
            if self.texts is None:
                timings = {"total_ms": milliseconds[-1]}
            request_line(
                id=self.id,
                method=self.scope["method"],
                route=self.route,
                status=self.status,
                texts=self.texts,
                tokens=None if self.texts is None else self.tokens,
                **timings,
            )
