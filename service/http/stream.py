"""Bulk work: one JSON object a line in, one result or one error a line out, in order.

Results flow while input still arrives. Bulk documents queue behind interactive ones, and wait
for room in the queue instead of being refused. A caller who sends faster than it reads is not
read from: nothing is kept but the few lines under way, and each of them counts.
"""

from __future__ import annotations

import asyncio
import functools
import json
import re
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from service.errors import (
    BodyTooLarge,
    InternalFault,
    InvalidRequest,
    ServiceError,
    SlowClient,
    UnsupportedMedia,
)
from service.http.body import body_chunks, content_type, is_gzipped
from service.http.json_input import decode_json, parse_request
from service.http.openapi import STREAM, responses
from service.http.request import ClientLeft, RequestContext, StreamedResponse
from service.http.routes import choose_options
from service.http.schemas import StreamLine
from service.logs import service as log
from service.service import Service

MEDIA_TYPES = ("application/x-ndjson", "application/ndjson", "application/jsonl")

_IN_FLIGHT = 4  # lines under way at once, for each worker
_BLANK = re.compile(rb"[ \t\n\r\f\v]*")

router = APIRouter()


@router.post(
    "/classify/stream",
    responses=responses(401, 415, 503),
    openapi_extra=STREAM,
    tags=["classification"],
)
async def classify_stream(request: RequestContext) -> Response:
    """Classify many texts over one connection, a line each."""
    service = request.service
    if content_type(request) not in MEDIA_TYPES:
        raise UnsupportedMedia(f"send {MEDIA_TYPES[0]}: one JSON object a line")
    is_gzipped(request)  # refused now rather than in the first line
    return _LineResponse(_Stream(request, service).answers())


class _LineResponse(StreamedResponse):
    """Sends lines as they come. (Starlette's own would read the body away to see it end.)"""

    def __init__(self, lines: AsyncGenerator[bytes, None]) -> None:
        super().__init__(media_type=MEDIA_TYPES[0], headers={"connection": "close"})
        self._lines = lines
        del self.headers["content-length"]

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Send the lines; when the caller leaves, stop."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            async with aclosing(self._lines) as lines:
                async for line in lines:
                    await send({"type": "http.response.body", "body": line, "more_body": True})
        except ClientLeft:
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})


@dataclass(eq=False)
class _Line:
    """A line that came, or what is wrong with it."""

    content: bytearray = field(default_factory=bytearray)
    wrong: ServiceError | None = None
    held_bytes: int = 0


class _Stream:
    """One caller's lines, from their first byte until their answer is sent."""

    def __init__(self, request: RequestContext, service: Service) -> None:
        self._request, self._service = request, service
        self._limit = service.settings.max_body_bytes
        self._most = _IN_FLIGHT * service.running.scheduler.policy.workers
        self._coming = _Line()
        self._held: set[_Line] = set()

    async def answers(self) -> AsyncGenerator[bytes, None]:
        """Answers in the order of the lines, each as soon as it and those before it are there."""
        lines = self._lines()
        under_way: deque[tuple[_Line, asyncio.Task[bytes]]] = deque()
        reading: asyncio.Task[_Line | None] = asyncio.create_task(_next(lines))
        ended = False
        try:
            while under_way or not ended:
                waiting: set[asyncio.Task[Any]] = {under_way[0][1]} if under_way else set()
                if len(under_way) < self._most:
                    waiting.add(reading)
                # Until a line is whole: its bytes alone give it no more time.
                patience = None if under_way else self._service.settings.body_seconds
                done, _ = await asyncio.wait(
                    waiting, timeout=patience, return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    yield _error_line(None, SlowClient("no line came for too long"))
                    return
                if reading in done:
                    line = reading.result()
                    if line is None:
                        ended = True
                        reading = asyncio.create_task(self._request.caller_leaves())
                    else:
                        under_way.append((line, asyncio.create_task(self._answer(line))))
                        reading = asyncio.create_task(_next(lines))
                while under_way and under_way[0][1].done():
                    line, task = under_way.popleft()
                    yield task.result()
                    self._let_go(line)
        finally:
            reading.cancel()
            for _, task in under_way:
                task.cancel()
            for line in list(self._held):
                self._let_go(line)

    async def _answer(self, line: _Line) -> bytes:
        """One line's answer; whatever is wrong with it stays on its own line."""
        service, size = self._service, len(line.content)
        caller_id: Any = None
        try:
            if line.wrong is not None:
                raise line.wrong
            caller_id, wanted = await service.parsing.run(size, functools.partial(_parse, line))
            if isinstance(wanted, ServiceError):
                raise wanted
            service.check_draining()
            options = choose_options(wanted, 1, service)
            answer = await service.running.pipeline.classify(
                [str(wanted.input)], options, bulk=True
            )
            content = {"id": caller_id, "result": asdict(answer.results[0])}
            written = await service.parsing.run(size, functools.partial(_line, content))
        except ServiceError as error:
            return _error_line(caller_id, error)
        except Exception:  # a fault of ours must not end the other lines
            log.exception("a fault while answering a line")
            return _error_line(caller_id, InternalFault())
        self._request.note(answer)
        return written

    async def _lines(self) -> AsyncIterator[_Line]:
        """The lines that hold something."""
        try:
            async for chunk in body_chunks(self._request, self._service):
                for line in self._split(chunk):
                    yield line
        except ServiceError as error:
            self._let_go(self._coming)
            yield _Line(wrong=error)
            return
        if self._coming in self._held or self._coming.wrong is not None:
            yield self._coming

    def _split(self, chunk: bytes) -> Iterator[_Line]:
        """The lines that end in these bytes; what is left is kept. Looks at each byte once."""
        start = 0
        while True:
            if not self._coming.content and self._coming.wrong is None:
                blank = _BLANK.match(chunk, start)
                start = blank.end() if blank is not None else start
            end = chunk.find(b"\n", start)
            if end < 0:
                self._keep(chunk[start:])
                return
            self._keep(chunk[start:end])
            line, self._coming = self._coming, _Line()
            yield line
            start = end + 1

    def _keep(self, piece: bytes) -> None:
        """Add to the line that is coming; of one that is refused nothing is kept."""
        line = self._coming
        if not piece or line.wrong is not None:
            return
        self._held.add(line)
        try:
            if len(line.content) + len(piece) > self._limit:
                raise BodyTooLarge(
                    f"the line is larger than the {self._limit} bytes that are allowed"
                )
            self._service.hold(line, len(piece))
        except ServiceError as error:
            self._let_go(line)
            line.wrong = error
        else:
            line.content += piece

    def _let_go(self, line: _Line) -> None:
        self._held.discard(line)
        self._service.release(line)
        line.content = bytearray()


async def _next(lines: AsyncIterator[_Line]) -> _Line | None:
    return await anext(lines, None)


def _parse(line: _Line) -> tuple[Any, StreamLine | ServiceError]:
    """The caller's id, if there is one, and the request or what is wrong with it."""
    caller_id: Any = None
    try:
        document = decode_json(bytes(line.content))
        if isinstance(document, dict):
            caller_id = document.get("id")
        wanted = parse_request(StreamLine, document)
        if not isinstance(wanted.input, str):
            raise InvalidRequest("input: one text a line")
    except ServiceError as error:
        return caller_id, error
    return caller_id, wanted


def _error_line(caller_id: Any, error: ServiceError) -> bytes:
    return _line({"id": caller_id, "error": error.problem()})


def _line(content: dict[str, Any]) -> bytes:
    return json.dumps(content, allow_nan=False).encode() + b"\n"
