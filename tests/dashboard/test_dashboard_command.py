"""`longdoc dashboard`: it listens on the loopback, and its WebSocket takes its own host only."""

from __future__ import annotations

import base64
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from longdoc import main


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A dashboard started where nothing of the repository is."""
    folder = tmp_path_factory.mktemp("elsewhere")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    process = subprocess.Popen(
        [sys.executable, "-m", "longdoc", "dashboard", "--port", str(port)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        deadline = time.monotonic() + 60
        while not _listens(port):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield port
    finally:
        process.terminate()
        said = process.communicate(timeout=20)[0]
    assert f"127.0.0.1:{port}" in said


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def handshake(port: int, host: str, origin: str) -> int:
    """The status that a WebSocket handshake is answered with."""
    key = base64.b64encode(os.urandom(16)).decode()
    request = (
        f"GET /_stcore/stream HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\n"
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        f"Sec-WebSocket-Key: {key}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(request.encode())
        return int(client.recv(4096).split()[1])


@pytest.mark.slow
def test_it_listens_on_the_loopback_alone(port: int) -> None:
    found = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
    ours = [line.split()[1] for line in found.splitlines() if f":{port:04X} " in line[:60]]
    listening = {address.partition(":")[0] for address in ours}
    assert listening == {"0100007F"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("127.0.0.1:{port}", "http://127.0.0.1:{port}", 101),
        ("localhost:{port}", "http://localhost:{port}", 101),
        ("127.0.0.1:{port}", "http://evil.example", 403),
        ("evil.example:{port}", "http://evil.example:{port}", 403),  # a name led to this machine
    ],
)
def test_its_websocket_takes_its_own_host_only(
    port: int, host: str, origin: str, status: int
) -> None:
    assert handshake(port, host.format(port=port), origin.format(port=port)) == status


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--port", "99999"], "--port must be from 0 to 65535"),
        (["--service", "10.0.0.5"], "--service must be like http://10.0.0.5:8000"),
    ],
)
def test_a_wrong_option_is_a_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dashboard", *arguments]) == 2
    assert sentence in capsys.readouterr().err
