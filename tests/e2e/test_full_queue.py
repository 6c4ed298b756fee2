"""What a full queue answers, and that a refusal leaves the connection fit for the next request."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from service.engines.fake import FakeEngine
from tests.support.serving import LABELS, Served, fake_deployment, serving, wait_until

ONE_WORKER: dict[str, Any] = {
    "workers": 1,
    "long_workers": 0,
    "queue_seconds": 0.02,
    "max_batch_size": 1,
}
TEXT = "word " * 50


@dataclass(frozen=True)
class Full:
    """A server whose queue is full until the gate is opened."""

    served: Served
    gate: threading.Event

    def empty(self) -> None:
        """Let everything run."""
        self.gate.set()
        scheduler = self.served.service.running.scheduler
        wait_until(lambda: scheduler.depth == 0)


@contextmanager
def full_queue(headers: dict[str, str] | None = None, **settings: Any) -> Iterator[Full]:
    """Fill a queue of little room with requests that wait for the gate."""
    gate = threading.Event()
    engine = FakeEngine(len(LABELS), seconds=lambda _batch, n: 0.0005 * n)
    with serving(fake_deployment(engine), **ONE_WORKER, **settings) as served:
        engine.seconds = lambda _batch, _n: float(not gate.wait(120))
        engine.runs.clear()
        scheduler = served.service.running.scheduler
        with ThreadPoolExecutor(20) as pool:
            try:
                asked = []
                while not engine.runs or not scheduler.admission.is_full(0.0):
                    asked.append(
                        pool.submit(served.post, "/classify", json={"input": TEXT}, headers=headers)
                    )
                    time.sleep(0.02)  # it may be refused while another is still being read
                    assert len(asked) < 500, "the queue never filled"
                wait_until(lambda: sum(not a.done() for a in asked) == scheduler.depth)
                yield Full(served, gate)
            finally:
                gate.set()


@pytest.fixture(scope="module")
def full() -> Iterator[Full]:
    with full_queue(body_seconds=1.0) as queue:
        yield queue


def test_a_refusal_is_a_problem_with_the_callers_id(full: Full) -> None:
    refused = full.served.post("/classify", json={"input": TEXT}, headers={"x-request-id": "mine"})
    assert refused.status_code == 429
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.headers["x-request-id"] == "mine"
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.json()["type"] == "urn:longdoc:problem:overloaded"
    assert refused.json()["status"] == 429


def test_refusals_are_counted_for_their_route(full: Full) -> None:
    def count() -> float:
        value = full.served.service.metrics.registry.get_sample_value(
            "longdoc_requests_total", {"route": "/classify", "status": "429"}
        )
        return value or 0.0

    before = count()
    full.served.classify()
    assert count() == before + 1


def test_the_inference_protocol_is_refused_in_its_own_form(full: Full) -> None:
    tensor = {"name": "text", "shape": [1], "datatype": "BYTES", "data": [TEXT]}
    refused = full.served.post("/v2/models/fake-linear/infer", json={"inputs": [tensor]})
    assert refused.status_code == 429
    assert set(refused.json()) == {"error"}
    assert int(refused.headers["retry-after"]) >= 1


def test_what_is_no_work_is_answered_all_the_same(full: Full) -> None:
    for path in ("/healthz", "/readyz", "/metrics", "/info", "/v2"):
        assert full.served.get(path).status_code == 200
    assert full.served.post("/nowhere", json={}).status_code == 404


@pytest.mark.parametrize("headers", [{"expect": "100-continue"}, {"connection": "close"}])
def test_refusals_that_the_connection_leaves_to_the_application(
    full: Full, headers: dict[str, str]
) -> None:
    refused = full.served.post("/classify", json={"input": TEXT}, headers=headers)
    assert refused.status_code == 429
    assert refused.json()["type"] == "urn:longdoc:problem:overloaded"


def test_a_chunked_body_is_refused_too(full: Full) -> None:
    refused = full.served.post("/classify", content=iter([b'{"input": ', b'"a text"}']))
    assert refused.status_code == 429


def test_the_answer_comes_before_the_body_and_the_next_one_in_order(full: Full) -> None:
    body = json.dumps({"input": TEXT}).encode()
    with socket.create_connection(("127.0.0.1", full.served.port), timeout=10) as connection:
        connection.sendall(_head("/classify", len(body)) + body[:10])
        assert _status(connection) == 429
        connection.sendall(body[10:] + _head("/classify", len(body)) + body)
        assert _status(connection) == 429
        connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: test\r\n\r\n")
        assert _status(connection) == 200


def test_a_refused_body_that_stalls_is_cut_off(full: Full) -> None:
    with socket.create_connection(("127.0.0.1", full.served.port), timeout=10) as connection:
        connection.sendall(_head("/classify", 1000) + b"{")
        assert _status(connection) == 429
        assert connection.recv(1000) == b""


def test_a_refused_body_may_be_longer_than_any_head(full: Full) -> None:
    with httpx.Client(base_url=full.served.url) as client:
        for _ in range(2):
            assert client.post("/classify", json={"input": TEXT * 800}).status_code == 429


def test_a_caller_without_a_key_is_told_that_and_not_the_load() -> None:
    key = {"x-api-key": "key-number-1"}
    with full_queue(key, api_keys=("key-number-1",)) as full:
        assert full.served.classify().status_code == 401
        refused = full.served.post("/classify", json={"input": TEXT}, headers=key)
        assert refused.status_code == 429


def test_a_refused_connection_serves_again() -> None:
    with full_queue() as full, httpx.Client(base_url=full.served.url) as client:
        assert client.post("/classify", json={"input": TEXT}).status_code == 429
        full.empty()
        assert client.post("/classify", json={"input": TEXT}).status_code == 200


def _head(path: str, length: int) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n"
        f"content-length: {length}\r\n\r\n"
    ).encode()


def _status(connection: socket.socket) -> int:
    """Read one answer."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(1)
    head = received.lower()
    length = int(head.partition(b"content-length: ")[2].partition(b"\r")[0])
    while length:
        length -= len(connection.recv(length))
    return int(head[9:12])
