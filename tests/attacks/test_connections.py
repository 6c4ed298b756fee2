"""One request, one answer, in order, whatever comes on a connection."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.engines.fake import FakeEngine
from tests.attacks.wire import JSON, Answer, answers, chunked, post, request
from tests.support.serving import LABELS, TEXT, Served, fake_deployment, serving, wait_until

BODY = json.dumps({"input": TEXT}).encode()
LAST = request("GET", "/healthz", ("Connection", "close"))
KEY = "a-key-that-lets-you-in"


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(body_seconds=2.0) as running:
        yield running
        assert running.classify().status_code == 200


@pytest.fixture(scope="module")
def locked() -> Iterator[Served]:
    with serving(api_keys=(KEY,)) as running:
        yield running


def talk(served: Served, *parts: bytes, pause: float = 0.0, seconds: float = 5.0) -> bytes:
    """Send the parts and return all that comes until the service closes or is silent."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=seconds) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        received = b""
        with suppress(TimeoutError, ConnectionError):
            for part in parts:
                connection.sendall(part)
                time.sleep(pause)
            while more := connection.recv(65_536):
                received += more
        return received


def ask(served: Served, *parts: bytes, methods: tuple[str, ...] = (), **how: float) -> list[Answer]:
    """The same, as answers."""
    return answers(talk(served, *parts, **how), *methods)


UPGRADES = [
    [("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c"), ("HTTP2-Settings", "AAMAAABk")],
    [
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("Sec-WebSocket-Version", "13"),
    ],
    [("Connection", "upgrade"), ("Upgrade", "TLS/1.0, whatever/7")],
]


@pytest.mark.parametrize("fields", UPGRADES)
@pytest.mark.parametrize("late", [False, True])
def test_an_offer_to_upgrade_is_ignored(
    served: Served, fields: list[tuple[str, str]], late: bool
) -> None:
    whole = request("POST", "/classify", JSON, *fields, body=BODY)
    head, body = whole[: -len(BODY)], BODY
    sent = [head, body + LAST] if late else [whole + LAST]
    first, last = ask(served, *sent, pause=0.1)
    assert first.status == 200
    assert first.json()["results"][0]["label"] in LABELS
    assert (last.status, last.body) == (200, b"ok\n")


@pytest.mark.parametrize("late", [False, True])
def test_what_follows_an_offer_to_upgrade_is_a_body_and_no_request(
    served: Served, late: bool
) -> None:
    """A request within the body would else be answered: for whoever shares a proxy with us."""
    smuggled = b"GET /info HTTP/1.1\r\nHost: x\r\n\r\n"
    fields = [("Connection", "Upgrade"), ("Upgrade", "h2c"), ("Content-Type", "text/plain")]
    whole = request("POST", "/classify", *fields, body=smuggled)
    head = whole[: -len(smuggled)]
    sent = [head, smuggled, LAST] if late else [whole + LAST]
    first, last = ask(served, *sent, pause=0.1)
    assert first.status == 200
    assert "results" in first.json()
    assert last.body == b"ok\n"


@pytest.mark.parametrize("fields", UPGRADES)
def test_a_stream_with_an_offer_to_upgrade(served: Served, fields: list[tuple[str, str]]) -> None:
    line = b'{"id": 1, "input": "a"}\n'
    ndjson = ("Content-Type", "application/x-ndjson")
    (answer,) = ask(
        served, request("POST", "/classify/stream", ndjson, *fields, body=line * 2), seconds=5
    )
    assert answer.status == 200
    assert [json.loads(each)["id"] for each in answer.body.splitlines()] == [1, 1]


@pytest.mark.parametrize(
    "junk",
    [
        b"\x16\x03\x01\x02\x00",
        b"POST /classify HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"GET /healthz HTTP/x.y\r\n\r\n",
        b"GET  HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: a\r\nbad field\r\n\r\n",
        request("POST", "/classify", JSON, ("Connection", "close"), body=b"{"),
        b"GET /healthz HTTP/1.1\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
    ],
)
def test_an_error_in_a_later_request_waits_its_turn(junk: bytes) -> None:
    engine = FakeEngine(len(LABELS))
    with serving(fake_deployment(engine)) as served:
        engine.seconds = lambda _batch, _n: 0.3
        first, *others = ask(served, post("slow " * 20) + post("slower " * 20) + junk, seconds=3)
        assert first.status == 200
        assert others[0].status == 200
        assert len(others) in (1, 2)
        assert all(400 <= other.status < 500 for other in others[1:])


@pytest.mark.parametrize("count", [2, 5])
def test_a_caller_who_leaves_with_requests_behind_is_noticed(count: int) -> None:
    gate = threading.Event()
    engine = FakeEngine(len(LABELS))
    with serving(fake_deployment(engine), max_batch_size=1) as served:
        engine.seconds = lambda _batch, _n: float(not gate.wait(10))
        engine.runs.clear()
        with socket.create_connection(("127.0.0.1", served.port)) as connection:
            connection.sendall(b"".join(post(f"document {i} " * 9) for i in range(count)))
            wait_until(lambda: len(engine.runs) >= 1)
        wait_until(lambda: served.service.in_flight == 0, 5)
        gate.set()
        wait_until(lambda: served.service.running.scheduler.depth == 0)
        assert len(engine.runs) <= 2  # what ran when the caller left, and no more
        assert served.classify().status_code == 200


_ONCE = [
    ("Content-Type", "application/json"),
    ("Content-Length", str(len(BODY))),
    ("Authorization", f"Bearer {KEY}"),
    ("X-API-Key", KEY),
    ("Content-Encoding", "identity"),
    ("Inference-Header-Content-Length", "7"),
    ("Host", "service"),
]


@pytest.mark.parametrize("field", _ONCE)
@pytest.mark.parametrize("other", ["the same", "another"])
def test_a_field_that_may_stand_once_and_stands_twice(
    served: Served, field: tuple[str, str], other: str
) -> None:
    name, value = field
    second = value if other == "the same" else value[:-1] + "x"
    if name == "Content-Length":
        second = value if other == "the same" else str(len(BODY) - 1)
    fields = [(name, value), (name.upper(), second)]
    if name == "Host":
        fields = fields[1:]
    length = [] if name == "Content-Length" else [("Content-Length", str(len(BODY)))]
    received = talk(served, request("POST", "/classify", *fields, *length, body=BODY) + LAST)
    assert received.startswith(b"HTTP/1.1 400 "), received[:200]
    assert b'"results"' not in received


def test_a_length_and_chunks_at_once_are_not_both_believed(served: Served) -> None:
    fields = [JSON, ("Transfer-Encoding", "chunked"), ("Content-Length", "3")]
    received = talk(served, request("POST", "/classify", *fields) + chunked(BODY) + b"\r\n" + LAST)
    assert received.count(b"HTTP/1.1 ") <= 2
    assert received.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 200 "))


@pytest.mark.parametrize(
    "trailer", [f"X-API-Key: {KEY}", f"Authorization: Bearer {KEY}", "Content-Type: text/plain"]
)
def test_trailers_are_no_fields(locked: Served, served: Served, trailer: str) -> None:
    sent = request("POST", "/classify", JSON, ("Transfer-Encoding", "chunked"))
    sent += chunked(BODY) + trailer.encode() + b"\r\n\r\n"
    received = talk(locked, sent, seconds=2)
    assert received.startswith((b"HTTP/1.1 401 ", b"HTTP/1.1 400 "))
    assert b'"results"' not in received
    answered = talk(served, sent + LAST, seconds=2)
    assert answered.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 400 "))


def test_a_key_lets_in(locked: Served) -> None:
    for field in (("X-API-Key", KEY), ("Authorization", f"Bearer {KEY}")):
        (answer, _) = ask(locked, post(TEXT, field) + LAST)
        assert answer.status == 200


def test_http_1_0_closes_unless_it_is_asked_not_to(served: Served) -> None:
    (answer,) = ask(served, post(TEXT, version="1.0") + LAST)
    assert answer.status == 200
    assert answer.headers.get("connection", "close") == "close"
    assert "transfer-encoding" not in answer.headers
    alive = post(TEXT, ("Connection", "keep-alive"), version="1.0")
    first, *rest = ask(served, alive + LAST)
    assert first.status == 200
    if rest:  # a server may close all the same
        assert rest[0].body == b"ok\n"


def test_a_stream_to_http_1_0_has_no_chunks(served: Served) -> None:
    ndjson = ("Content-Type", "application/x-ndjson")
    lines = b'{"id": 1, "input": "a"}\n' * 3
    received = talk(served, request("POST", "/classify/stream", ndjson, body=lines, version="1.0"))
    head, _, body = received.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head.lower()
    assert [json.loads(line)["id"] for line in body.splitlines()] == [1, 1, 1]


@pytest.mark.parametrize(
    "path",
    ["/healthz", "/readyz", "/metrics", "/info", "/docs", "/openapi.json", "/v2", "/nothing"],
)
def test_head_is_get_without_a_body(served: Served, path: str) -> None:
    get, head, last = ask(
        served, request("GET", path) + request("HEAD", path) + LAST, methods=("GET", "HEAD", "GET")
    )
    assert head.status == get.status
    assert head.body == b""
    assert head.headers["content-type"] == get.headers["content-type"]
    if path != "/metrics":  # whose figures have moved
        assert head.headers["content-length"] == str(len(get.body))
    assert last.body == b"ok\n"


def test_head_of_what_takes_only_post(served: Served) -> None:
    head, last = ask(served, request("HEAD", "/classify") + LAST, methods=("HEAD", "GET"))
    assert head.status == 405
    assert head.body == b""
    assert last.body == b"ok\n"


_TOO_BIG = request("POST", "/classify", JSON, ("Content-Length", str(9 << 20)))


@pytest.mark.parametrize(
    "sent",
    [
        post(TEXT) + LAST,
        post(TEXT, evidence=2) + LAST,
        request("POST", "/classify", JSON, body=b"{") + LAST,
        request("POST", "/classify", ("Content-Type", "text/plain"), body=TEXT.encode()) + LAST,
        request("POST", "/classify", JSON, ("Transfer-Encoding", "chunked"))
        + chunked(BODY[:5], BODY[5:])
        + b"\r\n"
        + LAST,
    ],
)
def test_whether_a_request_comes_at_once_or_late_changes_nothing(
    served: Served, sent: bytes
) -> None:
    def told(parts: list[bytes], pause: float) -> list[tuple[int, str]]:
        found = ask(served, *parts, pause=pause)
        kinds = [answer.headers["content-type"] for answer in found]
        return list(zip([answer.status for answer in found], kinds, strict=True))

    at_once = told([sent], 0)
    assert len(at_once) == 2
    for size, pause in ((1, 0.0), (7, 0.002), (50, 0.01)):
        parts = [sent[start : start + size] for start in range(0, len(sent), size)]
        assert told(parts, pause) == at_once


def test_a_broken_chunk_gives_no_second_status_line(served: Served) -> None:
    ndjson = ("Content-Type", "application/x-ndjson")
    head = request("POST", "/classify/stream", ndjson, ("Transfer-Encoding", "chunked"))
    line = b'{"id": 1, "input": "a"}\n'
    for broken in (b"zz\r\n", b"-1\r\n", b"5\r\nabcdefgh\r\n", b"ffffffffffffffffffff\r\n"):
        received = talk(
            served, head + b"%x\r\n%s\r\n" % (len(line), line), broken, pause=0.1, seconds=1
        )
        assert received.count(b"HTTP/1.1 ") == 1, received
        assert received.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 400 "))


def test_an_unfinished_body_after_an_early_answer_ends_with_its_connection(
    served: Served,
) -> None:
    begin = time.monotonic()
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
        connection.sendall(_TOO_BIG)
        received = b""
        with suppress(ConnectionError):
            while more := connection.recv(65_536):
                received += more
                connection.sendall(b"x" * 1000)
    assert received.startswith(b"HTTP/1.1 413 ")
    assert time.monotonic() - begin < 8


_DRIPPED = [
    b"GET /healthz HTTP/1.1\r\nHost: " + b"a" * 500,
    request("POST", "/classify", JSON, ("Content-Length", "500")) + b" " * 400,
    request("POST", "/estimate", JSON, ("Content-Length", "500")) + b" " * 400,
    request("POST", "/v2/models/fake-linear/infer", JSON, ("Content-Length", "500")) + b" " * 400,
    request("POST", "/healthz", JSON, ("Content-Length", "500")) + b" " * 400,
    request("GET", "/info", JSON, ("Content-Length", "500")) + b" " * 400,
    request("POST", "/nothing", JSON, ("Content-Length", "500")) + b" " * 400,
    request("POST", "/classify", JSON, ("Transfer-Encoding", "chunked")) + b"1\r\n \r\n" * 100,
    b"\r\n" * 500,
    request("GET", "/healthz") + b"GET /healthz HTTP/1.1\r\nHost: " + b"a" * 500,
]


def test_bytes_do_not_reset_a_deadline(served: Served) -> None:
    with ThreadPoolExecutor(len(_DRIPPED)) as callers:
        ended = list(callers.map(lambda sent: _ends_though_dripped(served, sent), _DRIPPED))
    assert all(ended), f"some may go on for ever: {ended}"


def _ends_though_dripped(served: Served, sent: bytes) -> bool:
    begin = time.monotonic()
    with socket.create_connection(("127.0.0.1", served.port)) as connection:
        connection.settimeout(0.05)
        place = sent.rfind(b"\r\n\r\n") + 4 if sent.startswith(b"POST") else 20
        connection.sendall(sent[:place])
        while time.monotonic() - begin < 9:
            try:
                if place < len(sent):
                    connection.sendall(sent[place : place + 1])
                    place += 1
                if connection.recv(65_536) == b"":
                    return True
            except TimeoutError:
                continue
            except ConnectionError:
                return True
    return False


_WORDS = ["GET", "POST", "HEAD", "/healthz", "/classify", "/classify/stream", "?a=b&a=c", "%00"]
_MARKS = [" ", "\r\n", "\n", "\r", ":", ";", "\t", "\0", "\x80", "HTTP/1.1", "HTTP/1.0", "9" * 30]
_FIELDS = [
    "Host: x",
    "Connection: close",
    "Connection: upgrade",
    "Upgrade: h2c",
    "Expect: 100-continue",
    "Content-Length: 5",
    "Content-Length: -1",
    "Content-Type: application/json",
    "Content-Encoding: gzip",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: gzip, chunked",
    "Inference-Header-Content-Length: ²",
]
_BODIES = ["5\r\nhello\r\n", "0\r\n\r\n", "ffffffff\r\n", "{}", '{"input":"a"}']
_TOKENS = st.sampled_from(_WORDS + _MARKS + _FIELDS + _BODIES)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(_TOKENS, min_size=1, max_size=30))
def test_whatever_comes_gives_answers_or_none(served: Served, tokens: list[str]) -> None:
    received = talk(served, "".join(tokens).encode("latin-1") + b"\r\n\r\n", seconds=0.05)
    methods = [token for token in tokens if token in ("GET", "POST", "HEAD")]
    for part in received.split(b"HTTP/1.1 ")[1:]:
        assert part[:1] in (b"1", b"2", b"4"), (methods, received)


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_a_good_request_with_one_byte_changed(served: Served, data: st.DataObject) -> None:
    sent = bytearray(post(TEXT, ("Connection", "close")))
    place = data.draw(st.integers(0, len(sent) - 1))
    sent[place] = data.draw(st.integers(0, 255))
    received = talk(served, bytes(sent), seconds=0.3)
    if received:
        found = answers(received)
        assert all(answer.status < 500 for answer in found)
