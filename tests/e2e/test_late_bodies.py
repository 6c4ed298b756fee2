"""The same answer whether a body comes with its head, after it, in one piece or late."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx
import pytest

from service.engines.fake import FakeEngine
from tests.support.serving import LABELS, TEXT, Served, fake_deployment, serving, wait_until

AT_ONCE, IN_PARTS, SLOWLY = (), (0.02,), (0.4,)  # seconds between head and body


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine(len(LABELS))


@pytest.fixture
def served(engine: FakeEngine) -> Iterator[Served]:
    with serving(fake_deployment(engine), workers=1, long_workers=0, max_batch_size=1) as served:
        yield served


class Caller:
    """One connection, and what comes back on it."""

    def __init__(self, served: Served) -> None:
        self.socket = socket.create_connection(("127.0.0.1", served.port), timeout=10)
        self.file = self.socket.makefile("rb")

    def send(self, pauses: tuple[float, ...] = AT_ONCE, **body: Any) -> None:
        """Send a request, pausing between its head and its body if told to."""
        content = json.dumps(body).encode()
        head = (
            "POST /classify HTTP/1.1\r\nHost: x\r\nX-Request-ID: mine\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        ).encode()
        if not pauses:
            self.socket.sendall(head + content)
            return
        self.socket.sendall(head)
        time.sleep(pauses[0])
        self.socket.sendall(content)

    def answer(self) -> httpx.Response:
        """Read one answer."""
        status = int(self.file.readline().split()[1])
        headers: list[tuple[str, str]] = []
        while line := self.file.readline().decode().strip():
            name, _, value = line.partition(": ")
            headers.append((name, value))
        content = self.file.read(int(dict(headers)["content-length"]))
        return httpx.Response(status, headers=headers, content=content)

    def close(self) -> None:
        """Hang up."""
        self.file.close()
        self.socket.close()


@pytest.mark.parametrize("pauses", [AT_ONCE, IN_PARTS, SLOWLY])
@pytest.mark.parametrize("options", [{}, {"evidence": 2}, {"top_k": None}])
def test_a_body_that_comes_late_gets_the_same_answer(
    served: Served, pauses: tuple[float, ...], options: dict[str, Any]
) -> None:
    with closing(Caller(served)) as caller:
        caller.send(pauses, input=TEXT, **options)
        answer = caller.answer()
        usual = served.post("/classify", json={"input": [TEXT], **options})
        caller.send(input=TEXT)
        assert caller.answer().status_code == 200, "the connection is of no more use"
    assert answer.status_code == usual.status_code == 200
    assert answer.headers.keys() == usual.headers.keys()
    assert answer.headers["x-request-id"] == answer.json()["id"] == "mine"
    found, as_usual = answer.json(), usual.json()
    for varies in ("id", "timings_ms"):
        assert found.pop(varies).__class__ is as_usual.pop(varies).__class__
    assert found == as_usual


@pytest.mark.parametrize("pauses", [AT_ONCE, SLOWLY])
def test_an_answer_that_is_late_is_a_504(
    served: Served, engine: FakeEngine, pauses: tuple[float, ...]
) -> None:
    engine.seconds = lambda _batch, _n: 0.5
    with closing(Caller(served)) as caller:
        caller.send(pauses, input=TEXT, timeout_ms=100)
        late = caller.answer()
        engine.seconds = lambda _batch, _n: 0.0
        caller.send(input=TEXT)
        assert caller.answer().status_code == 200
    assert late.status_code == 504
    assert late.headers["content-type"] == "application/problem+json"
    assert late.json()["type"].endswith("deadline-passed")
    wait_until(lambda: served.service.in_flight == 0)


def test_a_run_that_fails_is_a_500_that_says_nothing_of_the_text(
    served: Served, engine: FakeEngine
) -> None:
    engine.fail = RuntimeError(TEXT)
    with closing(Caller(served)) as caller:
        caller.send(input=TEXT)
        failed = caller.answer()
        engine.fail = None
        caller.send(input=TEXT)
        assert caller.answer().status_code == 200
    assert failed.status_code == 500
    assert TEXT not in failed.text


def test_a_caller_who_leaves_is_counted_and_holds_nothing(
    served: Served, engine: FakeEngine
) -> None:
    gate = threading.Event()
    engine.seconds = lambda _batch, _n: float(not gate.wait(10))
    scheduler, before = served.service.running.scheduler, len(engine.runs)
    callers = [Caller(served) for _ in range(3)]
    for caller in callers:
        caller.send(input=TEXT)
    wait_until(lambda: scheduler.depth == 3 and len(engine.runs) == before + 1)
    for caller in callers:
        caller.close()
    wait_until(lambda: served.service.in_flight == 0)
    gate.set()
    wait_until(lambda: scheduler.depth == 0)
    assert len(engine.runs) == before + 1, "what nobody waits for was run"
    counted = "longdoc_disconnected_requests_total 3.0"
    wait_until(lambda: counted in served.get("/metrics").text)
    assert served.service.held_bytes == 0


def test_a_request_whose_body_is_on_its_way_when_the_service_ends_is_answered() -> None:
    with serving(fake_deployment()) as served, closing(Caller(served)) as caller:
        body = json.dumps({"input": TEXT}).encode()
        caller.socket.sendall(
            b"POST /classify HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
        )
        time.sleep(0.05)
        served.service.drain()
        caller.socket.sendall(body)
        assert caller.answer().status_code in (200, 503)
