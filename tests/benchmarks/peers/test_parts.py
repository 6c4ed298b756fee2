"""The comparison's parts: client, loads, percentiles, tuning, verdicts."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.load.client import Client, Reply
from benchmarks.load.loops import Asked, Exchange, closed_loop, scheduled
from benchmarks.load.samples import TIMED_OUT, Sample
from benchmarks.peers import tuning
from benchmarks.peers.recording import percentile_of_all
from benchmarks.peers.registry import SERVERS, Server, find_servers
from benchmarks.peers.verdicts import ahead
from benchmarks.peers.workload import Plan, Workload
from tests.support.serving import tokenizer

PLAN = Plan("tiny", rounds=1, documents=40, behind_seconds=4, bursts_seconds=8)
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


def ask(handler: Handler, times: int = 1, patience: float = 5.0) -> list[Reply]:
    replies: list[Reply] = []

    async def use(port: int) -> None:
        async with Client(port) as client:
            for _ in range(times):
                replies.append(await client.send(b"GET / HTTP/1.1\r\n\r\n", patience))
                await asyncio.sleep(0.01)

    asyncio.run(with_server(handler, use))
    return replies


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Content-Length: 5\r\n\r\nhello",
        OK + b"transfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n",
    ],
)
def test_the_client_reads_bodies_of_both_kinds_and_keeps_the_connection(answer: bytes) -> None:
    assert ask(answering(answer, answer), times=2) == [Reply(200, b"hello")] * 2


def test_the_client_asks_again_when_an_idle_connection_was_closed() -> None:
    answer = OK + b"content-length: 0\r\n\r\n"
    assert ask(answering(answer, close=True), times=3) == [Reply(200)] * 3


def test_a_late_answer_and_a_broken_one_are_told_apart() -> None:
    late = ask(answering(OK + b"content-length: 0\r\n\r\n", seconds=1.0), patience=0.05)
    assert late == [Reply(0, reason=TIMED_OUT)]
    broken = ask(answering(OK + b"content-length: 9\r\n\r\nhalf", close=True))
    assert broken[0].status == 0
    assert broken[0].reason.startswith("connection failed")


def asked(count: int) -> list[Asked]:
    return [Asked(index, 100, b"GET / HTTP/1.1\r\n\r\n") for index in range(count)]


def test_a_closed_loop_sends_every_document_once() -> None:
    found: list[Exchange] = []

    async def use(port: int) -> None:
        found.extend(await closed_loop(port, asked(20), clients=3, patience=5.0))

    asyncio.run(with_server(answering(*[OK + b"content-length: 0\r\n\r\n"] * 20), use))
    assert sorted(each.document for each in found) == list(range(20))
    assert not any(each.sample.error for each in found)


def test_latency_counts_from_the_scheduled_time_and_refusals_are_named() -> None:
    found: list[Exchange] = []
    dues = [0.0, 0.01, 0.02]

    async def use(port: int) -> None:
        found.extend(await scheduled(port, asked(3), dues, patience=5.0))

    busy = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n"
    asyncio.run(with_server(answering(busy, seconds=0.1), use))
    assert [each.sample.due for each in sorted(found, key=lambda e: e.document)] == dues
    assert all(each.sample.seconds >= 0.1 for each in found)
    assert {each.sample.error for each in found} == {"503 Service Unavailable"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As much of a bundle as a workload reads."""
    path = tmp_path_factory.mktemp("bundle")
    tokenizer().save(str(path / "tokenizer.json"))
    return path


@pytest.fixture(scope="module")
def workload(folder: Path) -> Workload:
    return Workload(folder, PLAN, longest=2000)


def test_every_server_and_run_gets_the_same_load(workload: Workload, folder: Path) -> None:
    again = Workload(folder, PLAN, longest=2000)
    limits = {"behind": 50.0, "mixed": 50.0}
    for name in ("fixed", "mixed", "behind", "bursts"):
        assert workload.load(name, 1, limits) == again.load(name, 1, limits)
    first, second = (workload.load("behind", number, limits) for number in (1, 2))
    assert first.dues != second.dues


def test_one_in_twenty_is_long_and_the_others_are_short(workload: Workload) -> None:
    load = workload.load("behind", 1, {"behind": 500.0})
    tokens = [document.tokens for document in load.documents]
    assert sum(each > 1900 for each in tokens) == len(tokens) // 20
    assert sum(each < 512 for each in tokens) == len(tokens) - len(tokens) // 20
    assert load.rate == 300.0
    assert len(load.order) == len(load.dues) == pytest.approx(300 * PLAN.behind_seconds, rel=0.2)


def test_bursts_come_in_the_first_fifth(workload: Workload) -> None:
    load = workload.load("bursts", 1, {"mixed": 100.0})
    assert load.dues
    assert all(due % 4.0 <= 0.8 for due in load.dues)
    assert len(load.dues) == pytest.approx(50 * PLAN.bursts_seconds, rel=0.2)


def test_documents_asked_for_alone_have_all_lengths(workload: Workload) -> None:
    chosen = [workload.documents("mixed")[index].tokens for index in workload.sample_alone()]
    everything = [document.tokens for document in workload.documents("mixed")]
    assert max(chosen) == max(everything)
    assert len(chosen) == len(everything) == PLAN.alone


def samples(*seconds: float, lost: int = 0) -> list[Sample]:
    good = [Sample(0, each, 0, 10, 1, 200, "interactive", "") for each in seconds]
    return good + [Sample(0, 0.001, 0, 10, 1, 503, "interactive", "503")] * lost


def test_what_got_no_answer_took_forever() -> None:
    assert percentile_of_all(samples(1.0, 2.0, 3.0), 50) == 2.0
    assert percentile_of_all(samples(*[1.0] * 98, lost=2), 99) == math.inf
    assert percentile_of_all(samples(*[1.0] * 99, lost=1), 99) == 1.0
    assert math.isnan(percentile_of_all([], 99))


@pytest.mark.parametrize(
    ("theirs", "ours", "more", "expected"),
    [
        (103, 100, True, True),
        (101, 100, True, False),
        (97, 100, False, True),
        (99, 100, False, False),
        (math.inf, 1.0, False, False),
        (1.0, math.inf, False, True),
        (0.0, 0.0, False, False),
    ],
)
def test_ahead_means_better_by_more_than_noise(
    theirs: float, ours: float, more: bool, expected: bool
) -> None:
    assert ahead(theirs, ours, more) is expected


def test_the_best_settings_batch_and_do_not_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = find_servers("litserve")[0]
    single, eight, four = ({**server.tried[0], "batch": batch} for batch in (1, 8, 4))
    rows = [
        {"settings": single, "found": {"fixed": 99.0, "mixed": 99.0, "failed": 0}},
        {"settings": eight, "found": {"fixed": 90.0, "mixed": 40.0, "failed": 0}},
        {"settings": four, "found": {"fixed": 95.0, "mixed": 95.0, "failed": 3}},
    ]
    kept = tmp_path / "tuning.json"
    monkeypatch.setattr(tuning, "KEPT", kept)
    assert tuning.best_settings(server) == server.tried[0]
    kept.write_text(json.dumps({"litserve": rows}))
    assert tuning.best_settings(server) == eight
    level = {"settings": {**eight, "workers": 1}, "found": rows[1]["found"] | {"mixed": 39.0}}
    kept.write_text(json.dumps({"litserve": [level, *rows]}))
    server = replace(server, tried=(level["settings"], *server.tried))
    assert tuning.best_settings(server) == level["settings"]
    level["found"]["mixed"] = 38.0
    kept.write_text(json.dumps({"litserve": [level, *rows]}))
    assert tuning.best_settings(server) == eight


@pytest.mark.parametrize("server", SERVERS, ids=lambda server: server.name)
def test_a_request_is_whole_and_says_what_it_holds(server: Server) -> None:
    head, _, body = server.request("Grüße").partition(b"\r\n\r\n")
    assert head.startswith(b"POST /")
    assert f"Content-Length: {len(body)}".encode() in head
    assert "Grüße" in json.dumps(json.loads(body), ensure_ascii=False)


def test_an_unknown_server_is_named() -> None:
    with pytest.raises(SystemExit, match="unknown server 'apache'"):
        find_servers("longdoc,apache")
