"""Attacks by tools that others wrote, and a service that has hardly any file descriptors."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest

from tests.attacks.target import Target, attacked
from tests.attacks.wire import answers, post, request
from tests.support.serving import wait_until

_CONNECTIONS = 500
_SECONDS = 60


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    with attacked(queue_seconds="600") as running:
        yield running
        assert running.serves()


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is missing: scripts/install-attack-tools")
    return found


_SLOW = {
    "heads": ["-H", "-u", "/classify"],
    "bodies": ["-B", "-u", "/classify", "-s", "8192", "-f", "application/json"],
    "lines": ["-B", "-u", "/classify/stream", "-s", "8192", "-f", "application/x-ndjson"],
    "readers": ["-X", "-u", "/info", "-w", "8", "-y", "16", "-n", "5", "-z", "8", "-k", "5"],
}


@pytest.mark.attack
@pytest.mark.parametrize("kind", _SLOW)
def test_slow_callers(target: Target, kind: str) -> None:
    """Half a thousand connections that are as slow as they can, for a minute."""
    how = list(_SLOW[kind])
    place = how.index("-u") + 1
    how[place] = target.url + how[place]
    before = target.resident()
    command = [_tool("slowhttptest"), "-c", str(_CONNECTIONS), "-r", "250", "-i", "5", "-p", "5"]
    with target.watched() as watched, target.most_memory() as most:
        done = subprocess.run(
            [*command, "-x", "10", "-l", str(_SECONDS), *how],
            capture_output=True,
            text=True,
            timeout=4 * _SECONDS,
            check=True,
        )
    assert "Exit status" in done.stdout, done.stdout[-2000:]
    assert not re.search(r"service available:\W+(\S+m)?NO", done.stdout), done.stdout[-2000:]
    assert watched.failures == 0
    assert watched.longest < 1.0
    assert most[0] - before < 64 << 20
    wait_until(lambda: target.metrics()["longdoc_requests_in_flight"] == 0, 30)


@pytest.mark.attack
@pytest.mark.parametrize("pipelined", [1, 16])
def test_many_requests_at_once(target: Target, tmp_path: Path, pipelined: int) -> None:
    """A hundred connections, their requests one by one and sixteen at a time."""
    body = tmp_path / "body"
    body.write_text(json.dumps({"input": "The larvae were fed on sugar."}))
    with target.watched() as watched:
        how = f"--h1 -n 5000 -c 100 -m {pipelined} -d {body} -H content-type:application/json"
        done = subprocess.run(
            [_tool("h2load"), *how.split(), target.url + "/classify"],
            capture_output=True,
            text=True,
            timeout=600,
            check=True,
        )
    statuses = re.search(r"status codes: (\d+) 2xx, \d+ 3xx, (\d+) 4xx, (\d+) 5xx", done.stdout)
    assert statuses is not None, done.stdout
    assert int(statuses[1]) + int(statuses[2]) == 5000
    assert int(statuses[3]) == 0
    assert watched.failures == 0


def test_few_descriptors_and_many_connections() -> None:
    """Connections are refused before descriptors run out; those that are taken are served."""
    few = ["sh", "-c", 'ulimit -n 96; exec "$@"', "sh"]
    with attacked(before=few) as target, ExitStack() as opened:
        idle = []
        with suppress(OSError):
            for _ in range(200):
                idle.append(opened.enter_context(target.connect(seconds=2)))  # noqa: PERF401
        time.sleep(0.5)
        sent = request("GET", "/info", ("Connection", "close"))
        told = [told for connection in idle if (told := _told(connection, sent))]
        found = [answer for received in told for answer in answers(received)]
        assert {answer.status for answer in found} <= {200, 503}
        assert any(answer.status == 200 for answer in found)
        assert all(answer.headers.get("retry-after") for answer in found if answer.status == 503)
        opened.close()
        wait_until(lambda: _serves(target), 10)


def _told(connection: socket.socket, sent: bytes) -> bytes:
    received = b""
    with suppress(OSError):
        connection.sendall(sent)
    with suppress(OSError):
        while more := connection.recv(65_536):
            received += more
    return received


def _serves(target: Target) -> bool:
    try:
        return target.serves()
    except httpx.TransportError:
        return False


@pytest.mark.attack
def test_nothing_is_lost_on_sigterm_under_load() -> None:
    """Each request that was taken is answered, and the others are refused or never begun."""
    with attacked(drain_seconds="20") as target:

        def ask(index: int) -> int:
            received = target.talk(post(f"Document {index} " * 200, ("Connection", "close")))
            return int(received.split(b" ", 2)[1]) if received else 0

        with ThreadPoolExecutor(32) as callers:
            asked = [callers.submit(ask, index) for index in range(400)]
            time.sleep(0.5)
            target.process.terminate()
            statuses = [each.exception() or each.result() for each in asked]
        assert target.process.wait(30) == 0
        refused = [each for each in statuses if isinstance(each, ConnectionError)]
        assert {each for each in statuses if isinstance(each, int)} <= {200, 429, 503, 0}
        assert len(refused) < len(statuses)
