"""Requests that are wrong, hostile or slow, against a real server: told so, never a 500."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest

from service.engines.fake import FakeEngine
from tests.support.serving import LABELS, TEXT, Served, fake_deployment, serving, wait_until

JSON = {"content-type": "application/json"}
LIMIT = 8 << 20


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(body_seconds=1.5) as running:
        yield running
        assert running.classify().status_code == 200  # whatever came before, it still serves


def problem(response: httpx.Response, status: int, kind: str) -> dict[str, Any]:
    """The problem document, after checking what every one of them must have."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = response.json()
    assert document["status"] == status
    assert document["type"] == f"urn:longdoc:problem:{kind}"
    assert document["title"]
    assert document["detail"]
    return document


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"input": "a"',
        b"\xff\xfe{}",
        b'{"input": NaN}',
        b'{"input": "a", "top_k": ' + b"9" * 5000 + b"}",
        b"[" * 100_000,
        b'{"input":' * 50_000,
        b"\xef\xbb\xbf{}",
    ],
)
def test_what_is_not_json(served: Served, body: bytes) -> None:
    problem(served.post("/classify", content=body, headers=JSON), 400, "malformed-body")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "input"),
        ({"input": None}, "input"),
        ({"input": 7}, "input"),
        ({"input": {"text": "a"}}, "input"),
        ({"input": ["a", 7]}, "input"),
        ({"input": []}, "input"),
        ({"inputs": ["a", ["b"]]}, "inputs"),
        ({"input": "a", "top_k": 0}, "top_k"),
        ({"input": "a", "top_k": "3"}, "top_k"),
        ({"input": "a", "top_k": 1.5}, "top_k"),
        ({"input": "a", "top_k": True}, "top_k"),
        ({"input": "a", "on_overflow": "ignore"}, "on_overflow"),
        ({"input": "a", "evidence": -1}, "evidence"),
        ({"input": "a", "evidence": 10**30}, "evidence"),
        ({"input": "a", "timeout_ms": -5}, "timeout_ms"),
        ({"input": "a", "timeout_ms": 0}, "timeout_ms"),
        ({"input": "a", "colour": "red"}, "colour"),
    ],
)
def test_a_wrong_field_is_named(served: Served, body: dict[str, Any], field: str) -> None:
    document = problem(served.post("/classify", json=body), 422, "invalid-request")
    assert document["errors"][0]["field"] == field


@pytest.mark.parametrize("body", ["text", 7, None, True, ["a"], [[]]])
def test_json_that_is_no_object(served: Served, body: object) -> None:
    problem(
        served.post("/classify", content=json.dumps(body), headers=JSON), 422, "invalid-request"
    )


def test_fifty_levels_of_nesting(served: Served) -> None:
    nested: Any = "a"
    for _ in range(50):
        nested = [nested]
    problem(served.post("/classify", json={"input": nested}), 422, "invalid-request")


@pytest.mark.parametrize("text", ["", " ", "\n\t \u2003", "\u00a0"])
def test_nothing_to_classify(served: Served, text: str) -> None:
    assert problem(served.classify(text), 422, "empty-text")["errors"][0]["field"] == "input"
    response = served.post("/classify", json={"text": ["a", text]})
    assert problem(response, 422, "empty-text")["errors"][0]["field"] == "text.1"


def test_nul_is_a_character_like_any_other(served: Served) -> None:
    response = served.classify("a\x00b " * 20, evidence=1)
    assert response.status_code == 200
    assert "\x00" in response.json()["results"][0]["evidence"][0]["text"]


def test_half_a_surrogate_pair_is_not_text(served: Served) -> None:
    response = served.post("/classify", content=b'{"input": "a \\ud83d b"}', headers=JSON)
    assert "surrogate" in problem(response, 422, "invalid-request")["detail"]
    whole = served.post("/classify", content=b'{"input": "a \\ud83d\\ude00 b"}', headers=JSON)
    assert whole.status_code == 200


@pytest.mark.parametrize(
    "text",
    [
        "שלום עולם. זה משפט ארוך בעברית על תאים. " * 8,
        "النص العربي يقرأ من اليمين إلى اليسار. " * 8,
        "👩‍👩‍👧‍👦 family 🧬 cells 🌱 plants. Stars ✨ shine! " * 8,
        "Éléphant naïve café Ω≈ç√. " * 12,
    ],
)
def test_offsets_are_of_the_callers_text(served: Served, text: str) -> None:
    for candidate in (text, text * 20):  # in one piece, and in windows
        result = served.classify(candidate, evidence=3).json()["results"][0]
        assert result["evidence"]
        for passage in result["evidence"]:
            start, end = passage["start"], passage["end"]
            assert candidate[start:end] == passage["text"]
            assert start == 0 or candidate[start - 1].isspace()
            assert end == len(candidate) or candidate[end].isspace()


def test_a_text_that_is_not_utf8(served: Served) -> None:
    response = served.post(
        "/classify", content="café".encode("latin-1"), headers={"content-type": "text/plain"}
    )
    problem(response, 400, "malformed-body")


@pytest.mark.parametrize(
    "content_type",
    ["application/xml", "application/x-www-form-urlencoded", "text/plain; charset=latin-1", "x"],
)
def test_a_content_type_that_is_not_served(served: Served, content_type: str) -> None:
    response = served.post("/classify", content=b"a=b", headers={"content-type": content_type})
    problem(response, 415, "unsupported-media")


def test_an_encoding_that_is_not_served(served: Served) -> None:
    response = served.post("/classify", content=b"a", headers={**JSON, "content-encoding": "br"})
    problem(response, 415, "unsupported-media")


def test_the_largest_body_is_served_and_one_byte_more_is_not() -> None:
    with serving(max_body_bytes=100_000, timeout_ms=60_000) as served:
        frame = len(json.dumps({"input": ""}))
        fits = "word " * ((100_000 - frame) // 5) + "w" * ((100_000 - frame) % 5)
        body = json.dumps({"input": fits}).encode()
        assert len(body) == 100_000
        assert served.post("/classify", content=body, headers=JSON).status_code == 200
        problem(served.post("/classify", content=body + b" ", headers=JSON), 413, "body-too-large")


def _talk(served: Served, *parts: bytes, wait: float = 5.0) -> bytes:
    """Send raw bytes and return all that comes back until the server closes or is silent."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=wait) as connection:
        for part in parts:
            connection.sendall(part)
        received = b""
        try:
            while more := connection.recv(65_536):
                received += more
        except TimeoutError:
            pass
        return received


def test_too_large_is_told_before_the_body_comes(served: Served) -> None:
    head = f"POST /classify HTTP/1.1\r\nHost: x\r\nContent-Length: {LIMIT + 1}\r\n\r\n".encode()
    answer = _talk(served, head)  # not one byte of the body
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in answer.lower()


def test_too_large_without_a_length_is_cut_off_on_the_way(served: Served) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        while True:
            sent += 65_536
            yield b"x" * 65_536

    with suppress(httpx.WriteError, httpx.ReadError):  # closed while we were still sending
        problem(served.post("/classify", content=endless(), headers=JSON), 413, "body-too-large")
    assert sent > LIMIT


def test_too_large_without_a_length_but_finite(served: Served) -> None:
    chunks = iter([b"x" * 65_536] * (LIMIT // 65_536) + [b"x"])
    problem(served.post("/classify", content=chunks, headers=JSON), 413, "body-too-large")


def test_a_gzip_bomb(served: Served) -> None:
    bomb = gzip.compress(b" " * (400 << 20), compresslevel=9)
    assert len(bomb) < LIMIT
    response = served.post("/classify", content=bomb, headers={**JSON, "content-encoding": "gzip"})
    problem(response, 413, "body-too-large")


@pytest.mark.parametrize("cut", [slice(0, 20), slice(5, None), slice(0, -4)])
def test_broken_gzip(served: Served, cut: slice) -> None:
    packed = gzip.compress(json.dumps({"input": TEXT}).encode())[cut]
    response = served.post(
        "/classify", content=packed, headers={**JSON, "content-encoding": "gzip"}
    )
    problem(response, 400, "malformed-body")


def test_a_body_that_stalls_is_cut_off(served: Served) -> None:
    head = b'POST /classify HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"inp'
    answer = _talk(served, head, wait=20)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"slow-client" in answer


def test_a_head_that_stalls_is_cut_off(served: Served) -> None:
    assert _talk(served, b"POST /classify HTTP/1.1\r\nHost: ", wait=20) == b""
    assert _talk(served, wait=20) == b""


def test_a_head_that_never_ends_is_cut_off(served: Served) -> None:
    try:
        answer = _talk(served, b"GET /healthz HTTP/1.1\r\nX-A: " + b"a" * 200_000)
    except ConnectionError:
        return
    assert answer == b"" or answer.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 400 "))


def test_ten_thousand_texts(served: Served) -> None:
    response = served.post("/classify", json={"input": ["a"] * 10_000})
    assert "stream" in problem(response, 422, "invalid-request")["detail"]
    response = served.post("/classify", json={"input": ["a", "b"] * 500, "top_k": 1})
    assert [result["tokens"]["total"] for result in response.json()["results"]] == [1] * 1000


def test_a_field_given_twice(served: Served) -> None:
    response = served.post("/classify", content=b'{"input":"a","input":"b"}', headers=JSON)
    problem(response, 422, "invalid-request")
    problem(served.post("/classify", json={"input": "a", "text": "b"}), 422, "invalid-request")


def test_a_huge_top_k_means_all_labels(served: Served) -> None:
    for top_k in (10**9, 10**30, None):
        scores = served.classify(top_k=top_k).json()["results"][0]["scores"]
        assert sorted(score["label"] for score in scores) == sorted(LABELS)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("GET", "/classify", "POST"), ("PUT", "/classify", "POST"), ("POST", "/info", "GET, HEAD")],
)
def test_a_wrong_method(served: Served, method: str, path: str, allowed: str) -> None:
    response = httpx.request(method, served.url + path)
    problem(response, 405, "wrong-method")
    assert response.headers["allow"] == allowed


@pytest.mark.parametrize("path", ["/", "/classify/", "/nothing", "/%00", "/..%2f..", "/v3"])
def test_a_path_that_is_not_served(served: Served, path: str) -> None:
    problem(served.get(path), 404, "unknown-path")


def test_what_is_not_http(served: Served) -> None:
    assert _talk(served, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").startswith(
        b"HTTP/1.1 400"
    )


def test_pipelined_requests_are_answered_in_order(served: Served) -> None:
    requests = []
    for index in range(5):
        body = json.dumps({"input": "word " * (5 - index)}).encode()
        requests.append(
            f"POST /classify HTTP/1.1\r\nHost: x\r\nX-Request-ID: pipe-{index}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
    last = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    answer = _talk(served, b"".join(requests) + last)
    assert answer.count(b"HTTP/1.1 200 ") == 6
    places = [answer.index(f'"id":"pipe-{index}"'.encode()) for index in range(5)]
    assert places == sorted(places)


def test_a_caller_who_leaves_in_the_middle_of_the_body(served: Served) -> None:
    before = _metric(served, "longdoc_disconnected_requests_total")
    with socket.create_connection(("127.0.0.1", served.port)) as connection:
        connection.sendall(b"POST /classify HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        time.sleep(0.1)
    wait_until(lambda: _metric(served, "longdoc_disconnected_requests_total") == before + 1)
    wait_until(lambda: served.service.in_flight == 0)


def test_a_caller_who_leaves_while_waiting_has_its_work_dropped() -> None:
    gate = threading.Event()
    engine = FakeEngine(len(LABELS))
    with serving(fake_deployment(engine), workers=1, long_workers=0, max_batch_size=1) as served:
        engine.seconds = lambda _batch, _n: float(not gate.wait(10))
        body = json.dumps({"input": "stay " * 7}).encode()
        head = f"POST /classify HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        engine.runs.clear()
        answers: list[httpx.Response] = []
        first = threading.Thread(target=lambda: answers.append(served.classify("first")))
        first.start()
        wait_until(lambda: len(engine.runs) == 1)
        with socket.create_connection(("127.0.0.1", served.port)) as connection:
            connection.sendall(head + body)
            wait_until(lambda: served.service.running.scheduler.depth == 2)
        wait_until(lambda: served.service.running.scheduler.depth == 1)
        gate.set()
        first.join(10)
        assert answers[0].status_code == 200
        assert len(engine.runs) == 1
        assert _metric(served, "longdoc_disconnected_requests_total") == 1


def test_nobody_gets_anothers_answer(served: Served) -> None:
    texts = [f"caller {index} " + "word " * (index % 40) for index in range(60)]
    alone = {text: served.classify(text).json()["results"][0]["scores"] for text in texts}
    answers: dict[str, Any] = {}

    def ask(text: str) -> None:
        answers[text] = served.classify(text).json()["results"][0]["scores"]

    threads = [threading.Thread(target=ask, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    for text in texts:
        for mine, expected in zip(answers[text], alone[text], strict=True):
            assert mine["label"] == expected["label"]
            assert mine["score"] == pytest.approx(expected["score"], abs=1e-6)


def _metric(served: Served, name: str) -> float:
    for line in served.get("/metrics").text.splitlines():
        if line.startswith(name + " "):
            return float(line.rsplit(" ", 1)[1])
    raise AssertionError(f"no metric {name}")
