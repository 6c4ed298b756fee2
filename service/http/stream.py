"""Bulk work: one JSON object a line in, one result or one error a line out, in order.

Results flow while input still arrives. Bulk documents queue behind interactive ones, and wait
for room in the queue instead of being refused.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
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
from service.http.body import ClientLeft, body_chunks, content_type, decode_json, is_gzipped
from service.http.openapi import STREAM, responses
from service.http.routes import choose_options, note_answer, service_of
from service.http.schemas import StreamLine, parse_request
from service.http.waiting import client_left
from service.logs import service as log
from service.service import Service

MEDIA_TYPES = ("application/x-ndjson", "application/ndjson", "application/jsonl")

_IN_FLIGHT = 4  # lines under way at once, for each lane
_Line = bytes | ServiceError  # what came, or what is wrong with it

router = APIRouter()


@router.post(
    "/classify/stream",
    responses=responses(401, 415, 503),
    openapi_extra=STREAM,
    tags=["classification"],
)
async def classify_stream(request: Request) -> Response:
    """Classify many texts over one connection, a line each."""
    service = service_of(request)
    if content_type(request) not in MEDIA_TYPES:
        raise UnsupportedMedia(f"send {MEDIA_TYPES[0]}: one JSON object a line")
    is_gzipped(request)  # refused now rather than in the first line
    most = _IN_FLIGHT * service.running.scheduler.policy.lanes
    return _LineResponse(_answers(request, service, most))


class _LineResponse(Response):
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


async def _answers(request: Request, service: Service, most: int) -> AsyncGenerator[bytes, None]:
    """Answers in the order of the lines, each as soon as it and those before it are there."""
    lines = _lines(request, service.settings.max_body_bytes)
    under_way: deque[asyncio.Task[bytes]] = deque()
    reading: asyncio.Task[_Line | None] = asyncio.create_task(_next(lines))
    ended = False
    try:
        while under_way or not ended:
            waiting: set[asyncio.Task[Any]] = {under_way[0]} if under_way else set()
            if len(under_way) < most:
                waiting.add(reading)
            patience = None if under_way else service.settings.body_seconds
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
                    reading = asyncio.create_task(client_left(request.receive))
                else:
                    under_way.append(asyncio.create_task(_answer(request, service, line)))
                    reading = asyncio.create_task(_next(lines))
            while under_way and under_way[0].done():
                yield under_way.popleft().result()
    finally:
        for task in (*under_way, reading):
            task.cancel()


async def _next(lines: AsyncIterator[_Line]) -> _Line | None:
    return await anext(lines, None)


async def _answer(request: Request, service: Service, line: _Line) -> bytes:
    """One line's answer; whatever is wrong with it stays on its own line."""
    caller_id: Any = None
    try:
        if isinstance(line, ServiceError):
            raise line
        document = decode_json(line)
        if isinstance(document, dict):
            caller_id = document.get("id")
        wanted = parse_request(StreamLine, document)
        if not isinstance(wanted.input, str):
            raise InvalidRequest("input: one text a line")
        service.check_draining()
        options = choose_options(wanted, service)
        answer = await service.running.pipeline.classify(wanted.texts, options, bulk=True)
    except ServiceError as error:
        return _error_line(caller_id, error)
    except Exception:  # a fault of ours must not end the other lines
        log.exception("a fault while answering a line")
        return _error_line(caller_id, InternalFault())
    note_answer(service, request.state.record, answer)
    return _line({"id": caller_id, "result": asdict(answer.results[0])})


async def _lines(request: Request, limit: int) -> AsyncIterator[_Line]:
    """The lines that hold something, without ever keeping more than `limit` of one."""
    too_large = BodyTooLarge(f"the line is larger than the {limit} bytes that are allowed")
    kept, skipping = bytearray(), False
    try:
        async for chunk in body_chunks(request):
            *ends, rest = chunk.split(b"\n")
            for end in ends:
                if skipping or len(kept) + len(end) > limit:
                    yield too_large
                elif kept.strip() or end.strip():
                    yield bytes(kept + end)
                kept, skipping = bytearray(), False
            skipping = skipping or len(kept) + len(rest) > limit
            kept = bytearray() if skipping else kept + rest
    except ServiceError as error:
        yield error
        return
    if skipping:
        yield too_large
    elif kept.strip():
        yield bytes(kept)


def _error_line(caller_id: Any, error: ServiceError) -> bytes:
    return _line({"id": caller_id, "error": error.problem()})


def _line(content: dict[str, Any]) -> bytes:
    return json.dumps(content).encode() + b"\n"
