"""The HTTP client, the closed and the open loop, and percentiles of what they sent."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from benchmarks.load.client import Client, Reply
from benchmarks.load.loops import Exchange, Request, closed_loop, open_loop, run
from benchmarks.load.samples import (
    REFUSED_CONNECTION,
    TIMED_OUT,
    Sample,
    percentile_of_all,
    to_requests,
    to_samples,
)
from benchmarks.servers.process import free_port

OK = b"HTTP/1.1 200 OK\r\n"

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def with_server(handler: Handler, use: Callable[[int], Awaitable[object]]) -> None:
    """Run something against a server on a free port."""
    server = await asyncio.start_server(handler, "127.0.0.1", 0)
    async with server:
        await use(server.sockets[0].getsockname()[1])
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.sleep(0.01)  # connections close in the loop's next rounds


def answering(*answers: bytes, seconds: float = 0.0, close: bool = False) -> Handler:
    """A handler that gives one answer after another, on each connection from the start."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            try:
                await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                break
            await asyncio.sleep(seconds)
            writer.write(answer)
            await writer.drain()
        if not close:
            await reader.read()

    async def until_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(asyncio.CancelledError, ConnectionError):
                await handle(reader, writer)
        finally:
            writer.transport.abort()

    return until_the_end


def send(handler: Handler, times: int = 1, patience: float = 5.0) -> list[Reply]:
    replies: list[Reply] = []

    async def use(port: int) -> None:
        async with Client(port) as client:
            for _ in range(times):
                replies.append(await client.send(b"GET / HTTP/1.1\r\n\r\n", patience))
                await asyncio.sleep(0.01)

    run(with_server(handler, use))
    return replies


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Content-Length: 5\r\n\r\nhello",
        OK + b"transfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n",
    ],
)
def test_the_client_reads_bodies_of_both_kinds_and_keeps_the_connection(answer: bytes) -> None:
    assert send(answering(answer, answer), times=2) == [Reply(200, b"hello")] * 2


def test_the_client_asks_again_when_an_idle_connection_was_closed() -> None:
    answer = OK + b"content-length: 0\r\n\r\n"
    assert send(answering(answer, close=True), times=3) == [Reply(200)] * 3


def test_a_late_answer_and_a_broken_one_are_told_apart() -> None:
    late = send(answering(OK + b"content-length: 0\r\n\r\n", seconds=1.0), patience=0.05)
    assert late == [Reply(0, reason=TIMED_OUT)]
    broken = send(answering(OK + b"content-length: 9\r\n\r\nhalf", close=True))
    assert broken[0].status == 0
    assert broken[0].reason.startswith("connection failed")


def test_what_is_not_http_and_what_does_not_listen_are_failures_not_crashes() -> None:
    assert send(answering(b"SSH-2.0-server\r\n"))[0].reason.startswith("connection failed")
    gone = run(closed_loop(free_port(), requests(2), clients=1, patience=5.0))
    assert [each.sample.error for each in gone] == [REFUSED_CONNECTION] * 2


def requests(count: int) -> list[Request]:
    return [Request(b"GET / HTTP/1.1\r\n\r\n", index, 100) for index in range(count)]


def test_a_closed_loop_sends_every_document_once() -> None:
    found: list[Exchange] = []

    async def use(port: int) -> None:
        found.extend(await closed_loop(port, requests(20), clients=3, patience=5.0))

    run(with_server(answering(*[OK + b"content-length: 0\r\n\r\n"] * 20), use))
    assert sorted(each.document for each in found) == list(range(20))
    assert not any(each.sample.error for each in found)


def test_latency_counts_from_the_scheduled_time_and_refusals_are_named() -> None:
    found: list[Exchange] = []
    dues = [0.0, 0.01, 0.02]

    async def use(port: int) -> None:
        found.extend(await open_loop(port, requests(3), dues, patience=5.0))

    busy = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n"
    run(with_server(answering(busy, seconds=0.1), use))
    assert [each.sample.due for each in sorted(found, key=lambda e: e.document)] == dues
    assert all(each.sample.seconds > 0.099 for each in found)  # timers end a little early, too
    assert {each.sample.error for each in found} == {"503 Service Unavailable"}


def samples(*seconds: float, lost: int = 0) -> list[Sample]:
    good = [Sample(0, each, 0, 10, 1, 200, "interactive", "") for each in seconds]
    return good + [Sample(0, 0.001, 0, 10, 1, 503, "interactive", "503")] * lost


def test_a_request_without_an_answer_took_forever() -> None:
    assert percentile_of_all(samples(1.0, 2.0, 3.0), 50) == 2.0
    assert percentile_of_all(samples(*[1.0] * 98, lost=2), 99) == math.inf
    assert percentile_of_all(samples(*[1.0] * 99, lost=1), 99) == 1.0
    assert math.isnan(percentile_of_all([], 99))


def test_samples_survive_the_store() -> None:
    some = samples(1.0, 2.0, lost=1)
    assert to_samples(to_requests(some)) == some
