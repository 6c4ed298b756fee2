"""Carrying out a load: a closed loop of clients, or requests at their scheduled times."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus

from benchmarks.load.client import Client, Reply
from benchmarks.load.samples import Sample


@dataclass(frozen=True)
class Asked:
    """A request: which document, how long it is, and the bytes that ask for it."""

    document: int
    tokens: int
    request: bytes


@dataclass(frozen=True)
class Exchange:
    """What became of a request: the sample, the document's number and the answer."""

    sample: Sample
    document: int
    body: bytes


async def closed_loop(
    port: int, asked: Sequence[Asked], clients: int, patience: float
) -> list[Exchange]:
    """Every request once, by so many clients, each sending when its last was answered."""
    waiting = list(reversed(asked))
    exchanges: list[Exchange] = []
    async with Client(port) as client:
        start = time.perf_counter()

        async def one() -> None:
            while waiting:
                each = waiting.pop()
                due = time.perf_counter() - start
                reply = await client.send(each.request, patience)
                exchanges.append(
                    _exchange(each, due, 0.0, time.perf_counter() - start - due, reply)
                )

        await asyncio.gather(*(one() for _ in range(clients)))
    return exchanges


async def scheduled(
    port: int, asked: Sequence[Asked], dues: Sequence[float], patience: float
) -> list[Exchange]:
    """Each request at its time, whatever the server does; latency counts from that time."""
    exchanges: list[Exchange] = []
    async with Client(port) as client:
        start = time.perf_counter()

        async def one(each: Asked, due: float) -> None:
            late = max(0.0, time.perf_counter() - start - due)
            reply = await client.send(each.request, max(0.0, patience - late))
            exchanges.append(_exchange(each, due, late, time.perf_counter() - start - due, reply))

        tasks = []
        for each, due in zip(asked, dues, strict=True):
            wait = start + due - time.perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
            tasks.append(asyncio.create_task(one(each, due)))
        await asyncio.gather(*tasks)
    return exchanges


def span(exchanges: Sequence[Exchange]) -> float:
    """Seconds from the start until after the last answer, or until the last was given up."""
    ends = [each.sample.due + each.sample.seconds for each in exchanges]
    return max(ends, default=0.0) + 1e-6


def _exchange(asked: Asked, due: float, late: float, seconds: float, reply: Reply) -> Exchange:
    error = reply.reason if reply.status == 0 else ""
    if reply.status not in (0, 200):
        error = f"{reply.status} {HTTPStatus(reply.status).phrase}"
    due, seconds, late = (round(max(0.0, value), 6) for value in (due, seconds, late))
    sample = Sample(due, seconds, late, asked.tokens, 1, reply.status, "interactive", error)
    return Exchange(sample, asked.document, reply.body)
