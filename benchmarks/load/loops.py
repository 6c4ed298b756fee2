"""Sending a load: a closed loop of clients, or requests at their scheduled times."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import uvloop

from benchmarks.load.client import Client, Reply
from benchmarks.load.samples import Sample, name_status

T = TypeVar("T")


@dataclass(frozen=True)
class Request:
    """The whole bytes of a request, the number of its document and that document's tokens."""

    content: bytes
    document: int = 0
    tokens: int = 0


@dataclass(frozen=True)
class Exchange:
    """A request's timing and status, the number of its document, and the answer's body."""

    sample: Sample
    document: int
    body: bytes


def run(load: Coroutine[Any, Any, T]) -> T:
    """Run a load to its end on uvloop, which costs the least processor time."""
    return uvloop.run(load)


def post(path: str, body: object) -> bytes:
    """The bytes of a request with a JSON body."""
    content = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: */*\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def get(path: str) -> bytes:
    """The bytes of a request without a body."""
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: */*\r\n\r\n".encode()


async def send_once(port: int, request: bytes, patience: float = 10.0) -> Reply:
    """Send one request over a connection of its own."""
    async with Client(port) as client:
        return await client.send(request, patience)


async def closed_loop(
    port: int, requests: Sequence[Request], clients: int, patience: float
) -> list[Exchange]:
    """Send each request once, from `clients` clients that each wait for their answer."""
    waiting = list(reversed(requests))
    exchanges: list[Exchange] = []
    async with Client(port) as client:
        start = time.perf_counter()

        async def one() -> None:
            while waiting:
                request = waiting.pop()
                due = time.perf_counter() - start
                reply = await client.send(request.content, patience)
                seconds = time.perf_counter() - start - due
                exchanges.append(_exchange(request, due, 0.0, seconds, reply))

        await asyncio.gather(*(one() for _ in range(clients)))
    return exchanges


async def open_loop(
    port: int, requests: Sequence[Request], dues: Sequence[float], patience: float
) -> list[Exchange]:
    """Send each request when it is due; latency counts from then, however late it was sent."""
    exchanges: list[Exchange] = []
    async with Client(port) as client, asyncio.TaskGroup() as tasks:
        start = time.perf_counter()

        async def one(request: Request, due: float) -> None:
            late = max(0.0, time.perf_counter() - start - due)
            reply = await client.send(request.content, max(0.0, patience - late))
            seconds = time.perf_counter() - start - due
            exchanges.append(_exchange(request, due, late, seconds, reply))

        for request, due in zip(requests, dues, strict=True):
            wait = start + due - time.perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
            tasks.create_task(one(request, due))
    return exchanges


def _exchange(request: Request, due: float, late: float, seconds: float, reply: Reply) -> Exchange:
    error = reply.reason if reply.status == 0 else ""
    if reply.status not in (0, 200):
        error = name_status(reply.status)
    due, seconds, late = (round(max(0.0, value), 6) for value in (due, seconds, late))
    sample = Sample(due, seconds, late, request.tokens, 1, reply.status, "interactive", error)
    return Exchange(sample, request.document, reply.body)
