"""Calm, a storm of impatient callers, calm: afterwards it is as if there had been no storm.

The three steps in which another server (ray#41057) was found to go on computing, for minutes and
for nobody.
"""

from __future__ import annotations

import json
import random
import socket
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from service.engines.fake import FakeEngine
from tests.attacks.wire import post
from tests.support.serving import (
    LABELS,
    MAX_TOKENS,
    Served,
    fake_deployment,
    serving,
    wait_until,
)

_CALLERS = 24
_SECONDS = 3.0
_PER_TOKEN = 2e-5  # seconds that the engine takes
_GAUGES = ("queue_depth", "predicted_queue_seconds", "requests_in_flight", "held_bytes")


def _engine() -> FakeEngine:
    return FakeEngine(len(LABELS), lambda batch, n: _PER_TOKEN * batch * n)


@pytest.fixture
def served() -> Iterator[Served]:
    with serving(fake_deployment(_engine()), queue_seconds=5.0) as running:
        yield running


def _metric(served: Served, name: str) -> float:
    rows = served.get("/metrics").text.splitlines()
    (row,) = [row for row in rows if row.startswith(f"longdoc_{name} ")]
    return float(row.rsplit(" ", 1)[1])


def _calm(served: Served) -> float:
    """Seconds of a short document, at the median."""
    taken = []
    with httpx.Client(base_url=served.url, timeout=30) as client:
        for _ in range(40):
            begin = time.perf_counter()
            answer = client.post("/classify", json={"input": "word " * 40})
            assert answer.status_code == 200
            taken.append(time.perf_counter() - begin)
    return statistics.median(taken)


def _storm(served: Served, seed: int) -> int:
    """Send long documents and give each a moment only; return how many were given up."""
    drawn, given_up = random.Random(seed), 0
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline:
        text = "word " * drawn.randint(200, 4000)  # up to 80 windows
        if drawn.random() < 0.5:
            _send_and_leave(served, post(text), 0.05)
            given_up += 1
        else:
            status = _status(served, post(text, ("Connection", "close"), timeout_ms=50))
            assert status in (200, 429, 504)
            given_up += status == 504
    return given_up


def _send_and_leave(served: Served, request: bytes, seconds: float) -> None:
    with socket.create_connection(("127.0.0.1", served.port)) as connection:
        connection.sendall(request)
        time.sleep(seconds)


def _status(served: Served, request: bytes) -> int:
    with socket.create_connection(("127.0.0.1", served.port), timeout=30) as connection:
        connection.sendall(request)
        received = b""
        while more := connection.recv(65_536):
            received += more
    return int(received.split(b" ", 2)[1])


def test_calm_storm_calm(served: Served) -> None:
    before = _calm(served)
    with ThreadPoolExecutor(_CALLERS) as callers:
        given_up = sum(callers.map(lambda seed: _storm(served, seed), range(_CALLERS)))
    ended = time.monotonic()
    assert given_up > 30
    wait_until(lambda: all(_metric(served, gauge) == 0 for gauge in _GAUGES), 2)
    assert time.monotonic() - ended < 2.0
    after = _calm(served)
    assert after < 3 * before + 0.02
    # For each text that was given up, no more was run for nobody than a window.
    assert 0 < _metric(served, "wasted_tokens_total") <= given_up * MAX_TOKENS


@pytest.mark.parametrize("how", ["by hanging up", "by a deadline"])
def test_who_gives_up_between_windows_is_noticed(how: str) -> None:
    engine = FakeEngine(len(LABELS), lambda _batch, _n: 0.05)
    with serving(fake_deployment(engine), workers=1, long_workers=0) as served:
        engine.runs.clear()
        windows = 60
        text = "word " * (windows * 50)
        if how == "by a deadline":
            body = json.dumps({"input": text, "timeout_ms": 300})
            answer = served.post(
                "/classify", content=body, headers={"content-type": "application/json"}
            )
            assert answer.status_code in (429, 504)
        else:
            _send_and_leave(served, post(text), 0.3)
        wait_until(lambda: served.service.running.scheduler.depth == 0, 2)
        time.sleep(0.2)
        assert len(engine.runs) < windows / 2
        assert served.service.held_bytes == 0


def test_who_left_while_its_body_was_parsed_is_noticed() -> None:
    engine = FakeEngine(len(LABELS), lambda _batch, _n: 0.02)
    with serving(fake_deployment(engine), workers=1, long_workers=0) as served:
        engine.runs.clear()
        for _ in range(10):
            _send_and_leave(served, post("word " * 20_000), 0.0)  # 400 windows
        time.sleep(0.3)
        wait_until(lambda: served.service.running.scheduler.depth == 0, 2)
        assert served.service.in_flight == 0
        assert len(engine.runs) < 60
