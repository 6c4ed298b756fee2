"""A load generator that takes little of the processor: raw HTTP over kept-alive connections."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import numpy as np

from benchmarks.serving.documents import Document


@dataclass(frozen=True)
class Sample:
    """One request: its document's length, when it was due, how long it took, what came back."""

    tokens: int
    due: float
    seconds: float
    status: int


class Client:
    """Connections to one server, reused when free."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    @asynccontextmanager
    async def _connection(
        self,
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        pair = self._free.pop() if self._free else await self._open()
        try:
            yield pair
        except BaseException:
            pair[1].close()
            raise
        if not pair[1].is_closing():
            self._free.append(pair)

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 20)

    async def send(self, request: bytes) -> int:
        """Send a request, read the whole answer, return its status; 0 when there was none."""
        try:
            async with self._connection() as (reader, writer):
                writer.write(request)
                head = await reader.readuntil(b"\r\n\r\n")
                lower = head.lower()
                start = lower.index(b"content-length:") + 15
                await reader.readexactly(int(lower[start : lower.index(b"\r", start)]))
                if b"connection: close" in lower:
                    writer.close()
                return int(head[9:12])
        except (OSError, asyncio.IncompleteReadError):
            return 0

    def close(self) -> None:
        """Close the connections."""
        for _, writer in self._free:
            writer.close()


async def closed_loop(port: int, documents: Sequence[Document], clients: int) -> list[Sample]:
    """Every document once, by so many clients, each sending when its last was answered."""
    client = Client(port)
    waiting = [(document.tokens, document.request()) for document in reversed(documents)]
    samples: list[Sample] = []

    async def one() -> None:
        while waiting:
            tokens, request = waiting.pop()
            began = time.perf_counter()
            status = await client.send(request)
            samples.append(Sample(tokens, began, time.perf_counter() - began, status))

    await asyncio.gather(*(one() for _ in range(clients)))
    client.close()
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
    client = Client(port)
    random = np.random.default_rng(seed)
    count = max(1, int(rate * seconds))
    due = np.cumsum(random.exponential(1 / rate, count))
    order = random.integers(0, len(documents), count)
    requests = [document.request() for document in documents]
    samples: list[Sample] = []
    began = time.perf_counter()

    async def one(index: int, scheduled: float) -> None:
        status = await client.send(requests[index])
        took = time.perf_counter() - began - scheduled
        samples.append(Sample(documents[index].tokens, scheduled, took, status))

    tasks = []
    for index, scheduled in zip(order, due, strict=True):
        wait = began + scheduled - time.perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
        tick()
        tasks.append(asyncio.create_task(one(int(index), float(scheduled))))
    await asyncio.gather(*tasks)
    client.close()
    return samples


def span(samples: Sequence[Sample]) -> float:
    """Seconds from the first request's beginning to the last one's end."""
    ends = max(sample.due + sample.seconds for sample in samples)
    return ends - min(sample.due for sample in samples)


def percentile(samples: Sequence[Sample], share: float) -> float:
    """A percentile of the seconds of answered requests."""
    answered = [sample.seconds for sample in samples if sample.status == 200]
    return float(np.percentile(answered, share)) if answered else float("nan")
