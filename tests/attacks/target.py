"""A service under attack: `longdoc serve` as a process of its own, watched from another one.

The watcher asks for /healthz a hundred times a second and keeps the longest wait. It is a process
as well, for an attack that keeps this interpreter busy must not look like a slow service.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

#: The checkout that is attacked; ATTACKED names another, to see what it was like before.
ROOT = Path(os.environ.get("ATTACKED") or Path(__file__).parent.parent.parent)

_WATCH = """
import select, socket, sys, time
longest, answers, failures = 0.0, 0, 0
def connect():
    connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 60)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection
connection = connect()
print("watching", flush=True)
while not select.select([sys.stdin], [], [], 0.01)[0]:
    begin = time.perf_counter()
    try:
        connection.sendall(b"GET /healthz HTTP/1.1\\r\\nHost: watcher\\r\\n\\r\\n")
        received = b""
        while not received.endswith(b"ok\\n"):
            more = connection.recv(4096)
            if not more:
                raise ConnectionError
            received += more
        answers += 1
    except OSError:
        failures += 1
        connection.close()
        connection = connect()
    longest = max(longest, time.perf_counter() - begin)
print(longest, answers, failures)
"""


@dataclass
class Watched:
    """What /healthz was like during an attack."""

    longest: float = 0.0
    answers: int = 0
    failures: int = 0


@dataclass(frozen=True)
class Target:
    """A running service."""

    process: subprocess.Popen[bytes]
    port: int

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def connect(self, *, receive_buffer: int | None = None, seconds: float = 30) -> socket.socket:
        """A connection to it; a small receive buffer lets its answers wait on its side."""
        connection = socket.socket()
        connection.settimeout(seconds)
        if receive_buffer is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.connect(("127.0.0.1", self.port))
        return connection

    def talk(self, *parts: bytes, seconds: float = 10, pause: float = 0.0) -> bytes:
        """All that comes back to raw bytes, until the service closes or is silent so long."""
        with self.connect(seconds=seconds) as connection:
            received = b""
            try:
                for part in parts:
                    connection.sendall(part)
                    time.sleep(pause)
                while more := connection.recv(1 << 16):
                    received += more
            except (TimeoutError, ConnectionError):
                pass
            return received

    def post(self, path: str, body: bytes, **headers: str) -> httpx.Response:
        """Send a POST; a content type is JSON unless it is given."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named = {"content-type": "application/json", **named}
        return httpx.post(self.url + path, content=body, headers=named, timeout=120)

    def metrics(self) -> dict[str, float]:
        """Its metrics by name, with labels as they are written."""
        text = httpx.get(self.url + "/metrics", timeout=60).text
        rows = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, value in rows}

    def resident(self) -> int:
        """Bytes of memory that it has."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None, "the service has ended"
        return int(found.group(1)) * 1024

    def processor_seconds(self) -> float:
        """Processor time that it has taken."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def serves(self) -> bool:
        """Whether it answers an honest request rightly."""
        answer = self.post("/classify", json.dumps({"input": "The larvae were fed."}).encode())
        return answer.status_code == 200 and len(answer.json()["results"]) == 1

    @contextmanager
    def watched(self) -> Iterator[Watched]:
        """Watch /healthz during an attack."""
        found = Watched()
        with subprocess.Popen(
            [sys.executable, "-c", _WATCH, str(self.port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as watcher:
            assert watcher.stdout is not None
            assert watcher.stdout.readline() == "watching\n"
            yield found
            written, _ = watcher.communicate("\n", timeout=90)
            longest, answers, failures = written.split()
            found.longest, found.answers = float(longest), int(answers)
            found.failures = int(failures)

    @contextmanager
    def most_memory(self) -> Iterator[list[int]]:
        """Bytes of memory that it has at most meanwhile, in a list of one."""
        found, ended = [self.resident()], threading.Event()

        def look() -> None:
            while not ended.wait(0.02):
                found[0] = max(found[0], self.resident())

        looking = threading.Thread(target=look)
        looking.start()
        try:
            yield found
        finally:
            ended.set()
            looking.join()


@contextmanager
def attacked(
    *arguments: str,
    root: Path = ROOT,
    stdout: Any = subprocess.DEVNULL,
    stderr: Any = subprocess.DEVNULL,
    before: Sequence[str] = (),
    **settings: str,
) -> Iterator[Target]:
    """A service on a free port, from the checkout at `root`; killed if it has not ended."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    variables = {f"LONGDOC_{name.upper()}": value for name, value in settings.items()}
    with subprocess.Popen(
        [*before, sys.executable, "-m", "longdoc", "serve", "--port", str(port), *arguments],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), **variables},
        stdout=stdout,
        stderr=stderr,
    ) as process:
        target = Target(process, port)
        try:
            _wait_until_ready(target)
            yield target
        finally:
            if process.poll() is None:
                process.kill()


def _wait_until_ready(target: Target) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert target.process.poll() is None, "the service did not start"
        try:
            if httpx.get(target.url + "/readyz", timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    raise AssertionError("the service was not ready in time")
