"""What a connection may do, and what `connection.py` relies on in uvicorn and h11."""

from __future__ import annotations

import inspect
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import h11
import psutil
import pytest
from h11._receivebuffer import ReceiveBuffer
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from service.engines.fake import FakeEngine
from service.http.connection import MOST_HEAD_BYTES, MOST_UNPARSED_BYTES, ONCE
from tests.support.serving import LABELS, TEXT, Served, fake_deployment, serving, wait_until

MB = 1 << 20
GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(body_seconds=1.5) as running:
        yield running
        assert running.classify().status_code == 200
        wait_until(lambda: running.service.held_bytes == 0)
        assert running.service.in_flight == 0


def post(
    body: bytes = b"",
    *headers: str,
    path: str = "/classify",
    version: str = "1.1",
    length: int = -1,
) -> bytes:
    """A request's bytes."""
    head = [
        f"POST {path} HTTP/{version}",
        "Host: x",
        "Content-Type: application/json",
        *headers,
        f"Content-Length: {len(body) if length < 0 else length}",
    ]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


JSON = json.dumps({"input": TEXT}).encode()


@contextmanager
def connected(served: Served, timeout: float = 10.0) -> Iterator[socket.socket]:
    """A connection that is closed afterwards."""
    with closing(socket.create_connection(("127.0.0.1", served.port), timeout)) as connection:
        yield connection


def talk(served: Served, *parts: bytes, pause: float = 0.0, timeout: float = 10.0) -> bytes:
    """Send parts and read until the server closes the connection."""
    with connected(served, timeout) as connection:
        for part in parts:
            connection.sendall(part)
            time.sleep(pause)
        received = b""
        with suppress(TimeoutError):
            while more := connection.recv(65_536):
                received += more
        return received


def answers(received: bytes, methods: list[bytes]) -> list[tuple[int, bytes]]:
    """The statuses and bodies of some bytes, as a strict client reads them."""
    found = []
    client: h11.Connection | None = None
    for method in methods:
        rest = client.trailing_data[0] if client is not None else received
        client = h11.Connection(h11.CLIENT)
        client.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
        client.send(h11.EndOfMessage())
        client.receive_data(rest)
        client.receive_data(b"")
        status, body = 0, b""
        while not isinstance(event := client.next_event(), h11.EndOfMessage | h11.ConnectionClosed):
            if isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += event.data
        found.append((status, body))
    assert client is not None
    assert client.trailing_data[0] == b"", "more came than was asked for"
    return found


# What is relied on.


def test_uvicorn_and_h11_have_what_is_overridden_and_read() -> None:
    for name in (
        "connection_made",
        "connection_lost",
        "data_received",
        "handle_events",
        "on_response_complete",
        "pause_writing",
        "resume_writing",
        "send_400_response",
        "shutdown",
        "_should_upgrade",
        "_unset_keepalive_if_required",
    ):
        assert callable(getattr(H11Protocol, name)), name
    assert list(inspect.signature(H11Protocol.__init__).parameters) == [
        "self",
        "config",
        "server_state",
        "app_state",
        "_loop",
    ]
    source = inspect.getsource(H11Protocol)
    for words in (
        "self.send_400_response(msg)",
        '"state": self.app_state.copy()',
        "on_response=self.on_response_complete",
        "self.flow = FlowControl(transport)",
    ):
        assert words in source, words
    for name in ("disconnected", "message_event", "keep_alive", "response_complete", "more_body"):
        assert f"self.{name} = " in inspect.getsource(RequestResponseCycle.__init__), name
    assert "self.read_paused" in inspect.getsource(FlowControl)
    assert isinstance(h11.Connection(h11.SERVER)._receive_buffer, ReceiveBuffer)
    assert "buf.maybe_extract_lines()" in inspect.getsource(
        inspect.getmodule(h11.Connection(h11.SERVER)._reader)  # type: ignore[arg-type]
    )


# One request, one answer, in order.


@pytest.mark.parametrize("offer", ["h2c", "websocket", "h2c, websocket", "TLS/1.0"])
@pytest.mark.parametrize("late", [False, True])
def test_an_offer_to_upgrade_is_ignored(served: Served, offer: str, late: bool) -> None:
    headers = (f"Upgrade: {offer}", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAMA")
    request = post(JSON, *headers)
    cut = len(request) - len(JSON) if late else len(request)
    last = GET.replace(b"Host", b"Connection: close\r\nHost")
    received = talk(served, request[:cut], request[cut:], last, pause=0.2)
    first, second = answers(received, [b"POST", b"GET"])
    assert first[0] == second[0] == 200
    assert json.loads(first[1])["results"]
    assert second[1] == b"ok\n"


@pytest.mark.parametrize(
    "junk", [b"\x16\x03\x01", b"GET\r\n\r\n", b"x" * 100_000, GET[:-9] + b"\x00\r\n\r\n"]
)
def test_an_error_behind_a_request_does_not_overtake_its_answer(
    served: Served, junk: bytes
) -> None:
    with suppress(ConnectionResetError):
        received = talk(served, post(JSON) + junk)
        assert received.startswith(b"HTTP/1.1 200 ")
        status, body = answers(received[: received.index(b"}HTTP/1.1") + 1], [b"POST"])[0]
        assert status == 200
        assert json.loads(body)["results"]
        assert received.count(b"HTTP/1.1 ") == 2
        assert b"HTTP/1.1 4" in received


def test_junk_after_connection_close_does_not_cut_off_the_answer(served: Served) -> None:
    received = talk(served, post(JSON, "Connection: close") + b"junk " * 100)
    ((status, body),) = answers(received, [b"POST"])
    assert status == 200
    assert json.loads(body)["results"]


@pytest.mark.parametrize("behind", [b"", GET * 3, GET * 1000, GET * 4000])
def test_a_caller_who_hangs_up_with_more_behind_has_its_work_dropped(behind: bytes) -> None:
    gate, engine = threading.Event(), FakeEngine(len(LABELS))
    with serving(fake_deployment(engine), workers=1, long_workers=0, max_batch_size=1) as served:
        engine.seconds = lambda _batch, _n: float(not gate.wait(20))
        scheduler = served.service.running.scheduler
        with connected(served) as first:
            first.sendall(post(JSON))
            wait_until(lambda: scheduler.depth == 1)
            with connected(served) as second:
                second.sendall(post(JSON) + behind)
                wait_until(lambda: scheduler.depth == 2)
            wait_until(lambda: scheduler.depth == 1)
            gate.set()
            assert first.recv(100).startswith(b"HTTP/1.1 200 ")
        wait_until(lambda: served.service.in_flight == 0)
        wait_until(lambda: served.service.held_bytes == 0)


@pytest.mark.parametrize("name", sorted(ONCE - {b"transfer-encoding", b"expect"}))
@pytest.mark.parametrize("second", ["same", "other"])
def test_a_field_that_stands_once_and_is_given_twice(
    served: Served, name: bytes, second: str
) -> None:
    value = str(len(JSON)) if name.endswith(b"length") else "application/json"
    again = value if second == "same" else value + "1"
    shown = name.decode().title()
    head = f"POST /classify HTTP/1.1\r\nHost: x\r\n{shown}: {value}\r\n{shown.upper()}: {again}\r\n"
    if name != b"content-length":
        head += f"Content-Length: {len(JSON)}\r\n"
    received = talk(served, head.encode() + b"\r\n" + JSON)
    ((status, body),) = answers(received, [b"POST"])
    assert status == 400
    assert json.loads(body)["type"] == "urn:longdoc:problem:malformed-request"


def test_a_key_in_a_trailer_lets_nobody_in() -> None:
    body = b"%x\r\n%s\r\n0\r\nX-API-Key: number-one\r\nAuthorization: Bearer number-one\r\n\r\n"
    head = b"POST /classify HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
    with serving(api_keys=("number-one",)) as served:
        received = talk(served, head + b"\r\n" + body % (len(JSON), JSON), timeout=2)
        assert received.startswith(b"HTTP/1.1 401 ")
        allowed = talk(
            served, head + b"X-API-Key: number-one\r\n\r\n" + body % (len(JSON), JSON), timeout=2
        )
        assert allowed.startswith(b"HTTP/1.1 200 ")


def test_trailers_are_no_fields(served: Served) -> None:
    head = b"POST /classify HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTE: trailers\r\n"
    body = b"%x\r\n%s\r\n0\r\nContent-Type: application/xml\r\nX-Request-ID: mine\r\n\r\n"
    received = talk(served, head + b"\r\n" + body % (len(JSON), JSON), timeout=2)
    assert received.startswith(b"HTTP/1.1 200 ")
    assert b"mine" not in received


@pytest.mark.parametrize("keep_alive", [False, True])
def test_http_1_0(served: Served, keep_alive: bool) -> None:
    headers = ("Connection: keep-alive",) if keep_alive else ()
    received = talk(served, post(JSON, *headers, version="1.0"))
    ((status, body),) = answers(received, [b"POST"])
    assert status == 200
    assert json.loads(body)["results"]
    assert b"transfer-encoding" not in received.lower()
    lines = b'{"input": "a"}\n' * 3
    received = talk(
        served,
        post(lines, *headers, path="/classify/stream", version="1.0").replace(
            b"application/json", b"application/x-ndjson"
        ),
    )
    ((status, body),) = answers(received, [b"POST"])
    assert status == 200
    assert len(body.splitlines()) == 3


def test_a_broken_chunk_ends_a_stream_without_a_second_answer(served: Served) -> None:
    head = b"POST /classify/stream HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
    line = b'{"id": 1, "input": "a"}\n'
    with connected(served) as connection:
        connection.sendall(
            head + b"Content-Type: application/x-ndjson\r\n\r\n%x\r\n%s\r\n" % (len(line), line)
        )
        received = b""
        while b'"id": 1' not in received:
            received += connection.recv(65_536)
        connection.sendall(b"not a size\r\n")
        while more := connection.recv(65_536):
            received += more
    assert received.count(b"HTTP/1.1 ") == 1


def test_a_broken_chunk_before_an_answer_is_a_400(served: Served) -> None:
    head = b"POST /classify HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    for broken in (b"zz\r\n", b"5\r\n{}{}{}{}", b"5;" + b"x" * 100_000):
        with suppress(ConnectionResetError):
            ((status, _),) = answers(talk(served, head, broken, pause=0.1), [b"POST"])
            assert status == 400


@pytest.mark.parametrize(
    "path",
    [
        "/healthz",
        "/readyz",
        "/metrics",
        "/info",
        "/docs",
        "/openapi.json",
        "/v2",
        "/nothing",
        "/v2/health/live",
        "/v2/models/fake-linear",
        "/v2/models/fake-linear/ready",
        "/v2/models/x",
    ],
)
def test_head_is_get_without_a_body(served: Served, path: str) -> None:
    def ask(method: bytes) -> tuple[bytes, bytes]:
        request = GET.replace(b"GET /healthz", method + b" " + path.encode())
        head, _, body = talk(
            served, request.replace(b"Host", b"Connection: close\r\nX-Request-ID: a\r\nHost")
        ).partition(b"\r\n\r\n")
        names = sorted(
            line
            for line in head.split(b"\r\n")
            if not line.startswith((b"date", b"content-length"))
        )
        return b"\n".join(names), body

    (with_body, body), (without, nothing) = ask(b"GET"), ask(b"HEAD")
    assert body
    assert not nothing
    assert with_body == without


# Memory.


@pytest.mark.parametrize("request_bytes", [GET, post(JSON), post(JSON, path="/nowhere")])
def test_pipelined_requests_whose_answers_nobody_reads(
    served: Served, request_bytes: bytes
) -> None:
    memory = psutil.Process().memory_info
    talk(served, request_bytes * 100, timeout=0.5)
    before, most, sent = memory().rss, 0, 0
    with connected(served, 0.5) as connection:
        block = request_bytes * (MB // len(request_bytes))
        with suppress(TimeoutError):
            while sent < 40 * MB:
                sent += connection.send(block)
        most = max(most, memory().rss)
        time.sleep(1.0)
        assert memory().rss - before < 60 * MB
        assert served.service.held_bytes < 4 * MB
        assert served.get("/healthz").status_code == 200
    wait_until(lambda: served.service.held_bytes == 0)


def test_trailers_without_end(served: Served) -> None:
    head = b"POST /classify HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    before, sent = psutil.Process().memory_info().rss, 0
    with connected(served, 1.0) as connection, suppress(OSError):
        connection.sendall(head + b"%x\r\n%s\r\n0\r\n" % (len(JSON), JSON))
        while sent < 40 * MB:
            sent += connection.send(b"A: " + b"a" * 1000 + b"\r\n" + b"B: b\r\n" * 10_000)
    assert psutil.Process().memory_info().rss - before < 60 * MB
    wait_until(lambda: served.service.held_bytes == 0)


def test_a_head_over_the_limit(served: Served) -> None:
    for filler in (b"X-A: " + b"a" * MOST_HEAD_BYTES, b"A: b\r\n" * 15_000):
        with suppress(ConnectionResetError):
            received = talk(served, GET[:-2] + filler + b"\r\n" * 2)
            assert received.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 200 "))


def test_a_head_may_have_almost_as_much(served: Served) -> None:
    received = talk(served, GET[:-2] + b"X-A: " + b"a" * 60_000 + b"\r\n\r\n", timeout=1)
    assert received.startswith(b"HTTP/1.1 200 ")


def test_newcomers_are_refused_while_too_much_is_kept() -> None:
    with serving(max_held_bytes=200_000, body_seconds=5.0) as served:
        hoarders = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(6)]
        for hoarder in hoarders:
            with suppress(OSError):
                hoarder.sendall(b"GET / HTTP/1.1\r\nX-A: " + b"a" * 50_000)
        try:
            wait_until(lambda: served.service.held_bytes > 140_000)
            assert served.classify("word " * 20_000).status_code == 429
            assert served.get("/healthz").status_code == 200
            assert served.service.held_bytes < 260_000
        finally:
            for hoarder in hoarders:
                hoarder.close()
        wait_until(lambda: served.service.held_bytes == 0)
        assert served.classify("word " * 20_000).status_code == 200


# Time.


def _drip(connection: socket.socket, data: bytes, seconds: float) -> float:
    """Send a byte at a time until the other side closes; how long that took."""
    begin = time.monotonic()
    with suppress(OSError):
        for byte in data:
            connection.sendall(bytes([byte]))
            connection.settimeout(seconds)
            with suppress(TimeoutError):
                if not connection.recv(65_536):
                    break
    return time.monotonic() - begin


@pytest.mark.parametrize(
    "begin",
    [
        b"GET /healthz HTTP/1.1\r\nX-A: ",
        GET + b"GET /healthz HTTP/1.1\r\nX-A: ",
        post(b"{", length=100_000),
        post(b"", length=100_000, path="/nowhere"),
        post(b"", length=100_000, path="/healthz"),
        post(b"", path="/classify/stream", length=100_000).replace(b"/json", b"/x-ndjson"),
    ],
)
def test_bytes_alone_give_no_more_time(served: Served, begin: bytes) -> None:
    with connected(served) as connection:
        connection.sendall(begin)
        assert _drip(connection, b"a" * 100, 0.1) < 6.0


def test_an_idle_connection_stays_open_for_longer_than_a_head_may_take(served: Served) -> None:
    with connected(served) as connection:
        for _ in range(2):
            connection.sendall(GET)
            assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")
            time.sleep(2.5)
        connection.sendall(GET)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")


def test_many_requests_cut_anywhere_are_not_taken_for_one_slow_head(served: Served) -> None:
    data = GET * 60
    with connected(served) as connection:
        received = b""
        for start in range(0, len(data), 50):
            connection.sendall(data[start : start + 50])
            time.sleep(0.06)
        while received.count(b"ok\n") < 60:
            more = connection.recv(65_536)
            assert more
            received += more


def test_the_rest_of_a_refused_body_ends_with_its_connection(served: Served) -> None:
    request = post(b"", length=100_000, path="/nowhere")
    with connected(served) as connection:
        connection.sendall(request)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 404 ")
        begin = time.monotonic()
        assert connection.recv(65_536) == b""
        assert time.monotonic() - begin < 5.0


def test_a_refused_body_that_comes_after_all_leaves_the_connection_usable(served: Served) -> None:
    with connected(served) as connection:
        for pause in (0.0, 0.3):
            connection.sendall(post(b"", length=50_000, path="/nowhere"))
            assert connection.recv(65_536).startswith(b"HTTP/1.1 404 ")
            time.sleep(pause)
            connection.sendall(b"x" * 50_000)
        connection.sendall(GET)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")


def test_a_caller_who_does_not_read_is_given_up(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.http.connection.UNREAD_SECONDS", 1.0)
    before = len(_open_connections(served))
    with connected(served, 0.5) as connection:
        with suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            for _ in range(400):
                connection.sendall(GET.replace(b"healthz", b"metrics") * 20)
        wait_until(lambda: len(_open_connections(served)) == before)


def _open_connections(served: Served) -> list[Any]:
    return [
        connection
        for connection in psutil.Process().net_connections("tcp")
        if connection.laddr.port == served.port and connection.status == "ESTABLISHED"
    ]


def test_limits_are_what_the_documentation_says() -> None:
    assert MOST_UNPARSED_BYTES == MOST_HEAD_BYTES == 65_536
