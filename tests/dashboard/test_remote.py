"""A service that is down, slow, refuses or is not ours becomes a sentence; ours is understood."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dashboard.addresses import may_ask
from dashboard.remote import Remote, RemoteError, rates
from tests.support.serving import TEXT, serving


@contextmanager
def answering(answer: bytes | None) -> Iterator[str]:
    """A server that sends these bytes to everyone; None: accepts and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        kept: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                kept.append(connection)
                if answer is not None:
                    connection.recv(65_536)
                    connection.sendall(answer)
                    connection.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(10)
            for connection in kept:
                connection.close()


def response(body: bytes, kind: str = "text/html") -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + body


def complaints(remote: Remote) -> list[str]:
    """What each way of asking ends in."""
    found = []
    for ask in (remote.info, remote.metrics, lambda: remote.classify("text")):
        with pytest.raises(RemoteError) as caught:
            ask()
        found.append(str(caught.value))
    return found


@pytest.mark.parametrize(
    "answer",
    [
        response(b"<html>a shop</html>"),
        response(b'{"hello": "world"}', "application/json"),
        response(b"[]", "application/json"),
        response(b"up 1\n", "text/plain"),
        response(b"\xff\xfe\x00"),
    ],
)
def test_what_is_not_ours_is_told(answer: bytes) -> None:
    with answering(answer) as address:
        for sentence in complaints(Remote(address)):
            assert "not a Longdoc service" in sentence or "not in Prometheus's format" in sentence


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 200 OK\r\n"])
def test_what_does_not_speak_http_is_told(answer: bytes) -> None:
    with answering(answer) as address:
        assert all("nothing answers" in sentence for sentence in complaints(Remote(address)))


def test_a_silent_service_is_given_up() -> None:
    with answering(None) as address:
        for sentence in complaints(Remote(address, seconds=0.2)):
            assert "did not answer within 0.2 seconds" in sentence


@pytest.mark.parametrize("address", ["", "127.0.0.1:8000", "ftp://x", "http://", "http://[", "h"])
def test_what_is_no_address_is_told(address: str) -> None:
    for sentence in complaints(Remote(address)):
        assert "is no address" in sentence or "nothing answers" in sentence


def test_a_running_service_is_understood() -> None:
    with serving() as served:
        remote = Remote(served.url)
        assert remote.ready()
        assert remote.info()["model"] == "fake-linear"
        before = remote.metrics()
        answer = remote.classify(TEXT, evidence=2)
        assert answer["results"][0]["label"]
        assert answer["client_ms"] > 0
        found = rates(before, remote.metrics(), 2.0)
        assert found["documents"] == pytest.approx(0.5)
        assert found["latency"] > 0
        assert found["memory"] > 1


def test_a_refusal_is_told_with_its_reason() -> None:
    with serving(api_keys=("secret-key-1",)) as served:
        with pytest.raises(RemoteError, match="status 401"):
            Remote(served.url).info()
        assert Remote(served.url, key="secret-key-1").info()["labels"]
        with pytest.raises(RemoteError, match="status 422"):
            Remote(served.url, key="secret-key-1").classify("  ")


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("http://127.0.0.1:8000", True),
        ("http://localhost:1", True),
        ("http://[::1]:8000/", True),
        ("http://10.0.0.5:8000", True),
        ("http://10.0.0.5:8001", False),
        ("https://10.0.0.5:8000", False),
        ("http://169.254.169.254/latest/meta-data", False),
        ("http://192.168.1.1", False),
        ("http://2130706433:8000", False),
        ("http://127.0.0.1.example.com", False),
        ("http://127.0.0.1@example.com", False),
        ("http://example.com#@127.0.0.1", False),
        ("http://[fe80::1]", False),
        ("http://0.0.0.0:8000", False),
        ("file:///etc/passwd", False),
        ("http://127.0.0.1:99999", False),
    ],
)
def test_pages_ask_the_loopback_and_what_the_operator_allows(address: str, allowed: bool) -> None:
    assert may_ask(address, ["http://10.0.0.5:8000"]) is allowed


def test_an_address_that_is_not_allowed_gets_no_request() -> None:
    with pytest.raises(RemoteError, match="may not ask"):
        Remote("http://10.255.255.1:8000", seconds=0.2).info()


def test_a_redirect_is_not_followed() -> None:
    with serving() as ours:
        head = (
            f"HTTP/1.1 307 Elsewhere\r\nLocation: {ours.url}/info\r\nContent-Length: 2\r\n\r\n{{}}"
        )
        with answering(head.encode()) as address, pytest.raises(RemoteError, match="status 307"):
            Remote(address).info()
