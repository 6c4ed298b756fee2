"""Callers that make a service keep what they send, or what it would answer."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress

from tests.attacks.bodies import LIMIT
from tests.attacks.target import Target

GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
MISSING = b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n"
_TEXT = json.dumps({"input": "The larvae were fed on sugar."}).encode()
POST = (
    b"POST /classify HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(_TEXT), _TEXT)
)
WRONG = POST.replace(b'"input"', b'"wrong"')
STREAM = (
    b"POST /classify/stream HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
    b"Content-Type: application/x-ndjson\r\n\r\n"
)
_SECONDS = 8.0  # that a caller goes on


def chunk(data: bytes) -> bytes:
    """A chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def _push(connection: socket.socket, parts: Iterable[bytes], most: int = 40 << 20) -> int:
    """Send until so much is sent, the other side takes no more or the time is over."""
    deadline, sent = time.monotonic() + _SECONDS, 0
    connection.settimeout(1)
    with suppress(OSError):
        for part in parts:
            if sent >= most or time.monotonic() > deadline:
                break
            connection.sendall(part)
            sent += len(part)
    return sent


def _again(data: bytes) -> Iterable[bytes]:
    data *= max(1, 65_536 // len(data))
    while True:
        yield data


def _unread(target: Target, request: bytes) -> int:
    with target.connect(receive_buffer=4096) as connection:
        sent = _push(connection, _again(request))
        time.sleep(0.3)
        return sent


def unread_answers(target: Target) -> int:
    """40 MB of GETs on one connection, whose answers are never read."""
    return _unread(target, GET)


def unread_classifications(target: Target) -> int:
    """The same with documents."""
    return _unread(target, POST)


def unread_refusals(target: Target) -> int:
    """The same with requests that are wrong."""
    return _unread(target, WRONG)


def unread_problems(target: Target) -> int:
    """The same with a path where nothing is served."""
    return _unread(target, MISSING)


def unread_stream(target: Target) -> int:
    """Lines whose answers are long, as they hold the caller's id, and never read."""
    line = chunk(json.dumps({"id": "i" * 60_000, "input": "a"}).encode() + b"\n")
    with target.connect(receive_buffer=4096) as connection:
        connection.sendall(STREAM)
        return _push(connection, _again(line))


def endless_trailers(target: Target) -> int:
    """A chunked request whose trailer fields never end."""
    head = POST.replace(b"Content-Length: %d" % len(_TEXT), b"Transfer-Encoding: chunked")
    head = head.removesuffix(_TEXT)
    with target.connect() as connection:
        connection.sendall(head + chunk(_TEXT) + b"0\r\n")
        return _push(connection, _again(b"a: b\r\n"))


def endless_head(target: Target) -> int:
    """A request head whose fields never end."""
    with target.connect() as connection:
        connection.sendall(GET.removesuffix(b"\r\n"))
        return _push(connection, _again(b"a: b\r\n"))


def many_large_bodies(target: Target) -> int:
    """Sixty bodies at once, each of 8 MB less its last byte."""
    head = POST.removesuffix(_TEXT).replace(b"%d" % len(_TEXT), b"%d" % LIMIT)
    return _together(target, 60, lambda connection: _push(connection, [head, b"x" * (LIMIT - 1)]))


def many_large_lines(target: Target) -> int:
    """Sixty streams at once, each with a line of 8 MB that does not end."""

    def send(connection: socket.socket) -> int:
        connection.sendall(STREAM)
        return _push(connection, (chunk(b"x" * 65_536) for _ in range(127)))

    return _together(target, 60, send)


def many_wrong_bodies(target: Target) -> int:
    """Thirty bodies of 8 MB, one after the other, each wrong at its end."""
    body = b'{"input": "' + b"x" * (LIMIT - 30) + b'", "y": 1}'
    for _ in range(30):
        with suppress(OSError):
            target.post("/classify", body)
    return 30 * len(body)


def many_connections(target: Target) -> int:
    """A thousand connections that send nothing."""
    with ExitStack() as connections, suppress(OSError):
        for _ in range(1000):
            connections.enter_context(target.connect())
        time.sleep(2)
    return 0


def _together(target: Target, count: int, call: Callable[[socket.socket], int]) -> int:
    sent: list[int] = []

    def one() -> None:
        with suppress(OSError), target.connect() as connection:
            sent.append(call(connection))
            time.sleep(3)

    threads = [threading.Thread(target=one) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(sent)


def drip_behind_a_long_line(target: Target) -> int:
    """Behind 7.9 MB of a stream's line, 20,000 bytes one by one."""
    with target.connect() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(STREAM + chunk(b'{"input": "' + b"w" * 7_900_000))
        time.sleep(1)
        return _push(connection, (chunk(b"w") for _ in range(20_000)))


#: name: (what it does, megabytes by which memory may grow for as long as it goes on)
HOARDERS: dict[str, tuple[Callable[[Target], int], int]] = {
    "unread answers": (unread_answers, 64),
    "unread classifications": (unread_classifications, 64),
    "unread refusals": (unread_refusals, 64),
    "unread problems": (unread_problems, 64),
    "unread stream": (unread_stream, 64),
    "endless trailers": (endless_trailers, 64),
    "endless head": (endless_head, 64),
    "large bodies, 60 at once": (many_large_bodies, 640),
    "large lines, 60 at once": (many_large_lines, 640),
    "wrong bodies, 30 times 8 MB": (many_wrong_bodies, 128),
    "connections, 1,000": (many_connections, 64),
    "bytes behind a long line": (drip_behind_a_long_line, 64),
}
