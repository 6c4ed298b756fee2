"""A load generator that takes little of the processor: ready-made bytes over kept connections.

It shares the machine with the server that it measures, so a request costs it no task, no stream
and no parsing beyond the status and the length of the answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import uvloop

from benchmarks.service.connection import Pool
from benchmarks.service.documents import Document

T = TypeVar("T")


class Sample(NamedTuple):
    """One request: its document's length, when it was due, how long it took, what came back."""

    tokens: int
    due: float
    seconds: float
    status: int


def run_load(load: Coroutine[Any, Any, T]) -> T:
    """Run a load to its end on the cheapest event loop there is."""
    return uvloop.run(load)


async def closed_loop(port: int, documents: Sequence[Document], clients: int) -> list[Sample]:
    """Every document once, by so many clients, each sending when its last was answered."""
    waiting = [(document.tokens, document.request()) for document in reversed(documents)]
    count, samples, pool = len(waiting), list[Sample](), Pool(port)
    finished = asyncio.get_running_loop().create_future()
    began = time.perf_counter()

    def send_next() -> None:
        tokens, request = waiting.pop()
        due = time.perf_counter() - began

        def answered(status: int) -> None:
            samples.append(Sample(tokens, due, time.perf_counter() - began - due, status))
            if waiting:
                send_next()
            elif len(samples) == count:
                finished.set_result(None)

        pool.send(request, answered)

    for _ in range(min(clients, count)):
        send_next()
    await finished
    pool.close()
    return samples


async def open_loop(
    port: int,
    documents: Sequence[Document],
    rate: float,
    seconds: float,
    seed: int,
    tick: Callable[[], None] = lambda: None,
) -> list[Sample]:
    """Poisson arrivals on schedule whatever the server does; latency from the scheduled time."""
    random = np.random.default_rng(seed)
    count = max(1, int(rate * seconds))
    due = [float(moment) for moment in np.cumsum(random.exponential(1 / rate, count))]
    order = [int(index) for index in random.integers(0, len(documents), count)]
    requests = [document.request() for document in documents]
    samples, pool = list[Sample](), Pool(port)
    loop = asyncio.get_running_loop()
    finished = loop.create_future()
    began = time.perf_counter()

    def send_one(number: int) -> None:
        def answered(status: int) -> None:
            took = time.perf_counter() - began - due[number]
            samples.append(Sample(documents[order[number]].tokens, due[number], took, status))
            if len(samples) == count:
                finished.set_result(None)

        pool.send(requests[order[number]], answered)

    def send_what_is_due(number: int) -> None:
        tick()
        now = time.perf_counter() - began
        while number < count and due[number] <= now:
            send_one(number)
            number += 1
        if number < count:
            loop.call_later(max(0.0, due[number] - now), send_what_is_due, number)

    send_what_is_due(0)
    await finished
    pool.close()
    return samples


def span(samples: Sequence[Sample]) -> float:
    """Seconds from the first request's beginning to the last one's end."""
    ends = max(sample.due + sample.seconds for sample in samples)
    return ends - min(sample.due for sample in samples)


def percentile(samples: Sequence[Sample], share: float) -> float:
    """A percentile of the seconds of answered requests."""
    answered = [sample.seconds for sample in samples if sample.status == 200]
    return float(np.percentile(answered, share)) if answered else float("nan")
