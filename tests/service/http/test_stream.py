"""Streams of lines: what a caller can make the service keep, and for how long."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest

from service.engines.fake import FakeEngine
from tests.support.serving import LABELS, Served, fake_deployment, serving, wait_until

HEADERS = {"content-type": "application/x-ndjson"}


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(body_seconds=1.5, max_held_bytes=1 << 20, max_body_bytes=1 << 20) as running:
        yield running
        assert running.classify().status_code == 200


def _ask(served: Served, body: bytes) -> list[dict[str, Any]]:
    response = served.post("/classify/stream", content=body, headers=HEADERS)
    assert response.status_code == 200

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return [json.loads(line, parse_constant=refuse) for line in response.text.splitlines()]


def _begin(served: Served) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", served.port), timeout=20)
    connection.sendall(
        b"POST /classify/stream HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
        b"Content-Type: application/x-ndjson\r\n\r\n"
    )
    return connection


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _held(served: Served) -> int:
    held: int = served.service.held_bytes
    return held


@pytest.mark.parametrize("id_", ["1e999", "-1e999", '"\\ud800"', '{"a": ["\\udfff"]}', "NaN"])
def test_an_id_that_json_cannot_repeat_is_refused(served: Served, id_: str) -> None:
    good = b'{"id": 2, "input": "a"}\n'
    wrong, right = _ask(served, f'{{"id": {id_}, "input": "a"}}\n'.encode() + good)
    assert wrong["error"]["status"] in (400, 422)
    assert wrong["id"] is None
    assert right["id"] == 2
    assert right["result"]["label"] in LABELS


@pytest.mark.parametrize(
    "id_", [None, 0, "ü😀", [1, {"a": None}], 10**30, 1.5, True, "x" * 100_000]
)
def test_any_other_id_comes_back(served: Served, id_: object) -> None:
    (answer,) = _ask(served, json.dumps({"id": id_, "input": "a"}).encode())
    assert answer["id"] == id_
    (answer,) = _ask(served, json.dumps({"id": id_, "text": 7}).encode())
    assert answer["id"] == id_
    assert answer["error"]["status"] == 422


def test_lines_are_found_however_they_are_cut(served: Served) -> None:
    lines = [b'{"id":0,"input":"a"}', b" \t", b"", b'{"id":1,\r\t"input":"b"} \r', b"x", b"\r"]
    body = b"\n".join(lines) + b'\n\n  {"id":2,"input":"c"}'
    for size in (1, 2, 7, len(body)):
        pieces = (body[start : start + size] for start in range(0, len(body), size))
        response = served.post("/classify/stream", content=pieces, headers=HEADERS)
        answers = [json.loads(line) for line in response.text.splitlines()]
        assert [answer["id"] for answer in answers] == [0, 1, None, 2]
        assert answers[2]["error"]["status"] == 400


def test_a_line_counts_as_held_until_it_is_answered(served: Served) -> None:
    with _begin(served) as connection:
        connection.sendall(_chunk(b'{"input": "' + b"word " * 100_000))
        wait_until(lambda: _held(served) > 450_000)
        refused = served.classify("word " * 120_000)  # together more than may be held
        assert refused.status_code == 429
        connection.sendall(_chunk(b'"}\n'))
        received = b""
        while b'"result"' not in received:
            received += connection.recv(65_536)
        wait_until(lambda: _held(served) == 0)


def test_a_line_for_which_there_is_no_room_is_refused_and_the_next_answered(
    served: Served,
) -> None:
    with _begin(served) as first:
        first.sendall(_chunk(b'{"input": "' + b"word " * 160_000))
        wait_until(lambda: _held(served) > 700_000)
        long = json.dumps({"id": 1, "input": "word " * 160_000}).encode()
        wrong, right = _ask(served, long + b'\n{"id": 2, "input": "a"}')
        assert wrong["error"]["status"] == 429
        assert right["id"] == 2
    wait_until(lambda: _held(served) == 0)  # the first has left


def test_a_line_that_is_too_large_is_not_kept(served: Served) -> None:
    with _begin(served) as connection:
        for _ in range(40):
            connection.sendall(_chunk(b"x" * 65_536))
        connection.sendall(_chunk(b'\n{"id": 2, "input": "a"}\n') + b"0\r\n\r\n")
        received = b""
        while more := connection.recv(65_536):
            received += more
    assert b"body-too-large" in received
    assert b'"id": 2' in received
    wait_until(lambda: _held(served) == 0)


@pytest.mark.parametrize("dripped", [b"x", b"\n", b" "])
def test_bytes_alone_give_a_line_no_more_time(served: Served, dripped: bytes) -> None:
    begin = time.monotonic()
    with _begin(served) as connection:
        connection.settimeout(0.1)
        received = b""
        while b"slow-client" not in received:
            assert time.monotonic() - begin < 10, received
            connection.sendall(_chunk(dripped))
            try:
                received += connection.recv(65_536)
            except TimeoutError:
                continue
    assert time.monotonic() - begin > 1.4
    wait_until(lambda: _held(served) == 0)


def test_answers_that_nobody_reads_stop_the_reading() -> None:
    with (
        serving(fake_deployment(FakeEngine(len(LABELS))), body_seconds=1.5) as served,
        socket.socket() as connection,
    ):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(2)
        connection.connect(("127.0.0.1", served.port))
        connection.sendall(
            b"POST /classify/stream HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
            b"Content-Type: application/x-ndjson\r\n\r\n"
        )
        line = json.dumps({"id": "i" * 60_000, "input": "a"}).encode() + b"\n"
        sent = 0
        with suppress(TimeoutError):
            while sent < 60 << 20:
                connection.sendall(_chunk(line))
                sent += len(line)
        assert sent < 30 << 20
        assert _held(served) < 3 << 20
        assert served.classify().status_code == 200
    wait_until(lambda: _held(served) == 0)


def test_unread_answers_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.http.connection.UNREAD_SECONDS", 0.5)
    with serving(fake_deployment(FakeEngine(len(LABELS)))) as served:
        line = json.dumps({"id": "i" * 500_000, "input": "a"}).encode() + b"\n"
        with _begin(served) as connection:
            connection.settimeout(1)
            with suppress(OSError):
                for _ in range(60):
                    connection.sendall(_chunk(line))
            wait_until(lambda: _held(served) == 0)


def test_a_caller_who_leaves_is_let_go_of(served: Served) -> None:
    for _ in range(5):
        with _begin(served) as connection:
            line = b'{"input": "' + b"word " * 10_000
            connection.sendall(_chunk(line + b'"}\n' + line))
    wait_until(lambda: _held(served) == 0)
    wait_until(lambda: served.service.in_flight == 0)


def test_the_time_of_a_line_does_not_depend_on_how_it_is_cut() -> None:
    """Whole, or behind most of it a few bytes at a time: each byte is looked at once."""
    with serving(max_body_bytes=8 << 20) as served:
        begin = time.process_time()
        with _begin(served) as connection:
            connection.sendall(_chunk(b'{"input": "' + b"word " * 1_500_000))
            wait_until(lambda: _held(served) > 7_000_000)
            before = time.process_time()
            for _ in range(2000):
                connection.sendall(_chunk(b"w"))
            wait_until(lambda: _held(served) >= 7_502_011)
            dripped = time.process_time() - before
        assert time.process_time() - begin < 60
    assert dripped < 2.0  # 2,000 copies of 7.5 MB take longer


def test_an_endless_stream_of_blank_lines_holds_up_nobody(served: Served) -> None:
    longest = 0.0
    with httpx.Client(base_url=served.url, timeout=30) as client, _begin(served) as connection:
        client.get("/healthz")
        for _ in range(20):
            connection.sendall(_chunk(b"\n" * (1 << 20)))
            before = time.perf_counter()
            assert client.get("/healthz").status_code == 200
            longest = max(longest, time.perf_counter() - before)
    assert longest < 1.0
