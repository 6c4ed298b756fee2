"""Starting a server, waiting for its first answer, and stopping it with all its processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.load.client import Client
from benchmarks.peers.registry import ROOT, Server, Settings
from benchmarks.servers.ports import free_port
from models.errors import LongdocError

_READY_SECONDS = 120.0
_END_SECONDS = 15.0


class StartError(LongdocError):
    """A server that did not come up; the message ends with what it said last."""


@dataclass(frozen=True)
class Running:
    """A server that has answered; `start_seconds` from its process's start to that answer."""

    server: Server
    port: int
    pid: int
    start_seconds: float


@contextmanager
def run_server(server: Server, bundle: Path, settings: Settings) -> Iterator[Running]:
    """A server from process start to its first answer; all its processes are ended at the end."""
    with tempfile.TemporaryDirectory(prefix="peer-", ignore_cleanup_errors=True) as folder:
        log = Path(folder) / "log.txt"
        port = free_port()
        began = time.perf_counter()
        process = _start(server, bundle, settings, port, folder, log)
        try:
            _wait_for_answer(process, server, port, log)
            yield Running(server, port, process.pid, time.perf_counter() - began)
        finally:
            _end(process)


def _start(
    server: Server, bundle: Path, settings: Settings, port: int, folder: str, log: Path
) -> subprocess.Popen[bytes]:
    if not server.python.exists():
        raise StartError(f"{server.title} is not installed: run `make peers-setup`")
    variables = {
        "PEER_BUNDLE": str(bundle.resolve()),
        "PEER_PORT": str(port),
        "PEER_SETTINGS": json.dumps(dict(settings)),
        "PYTHONPATH": str(ROOT),
        "BENTOML_HOME": folder,
        **server.variables,
        **settings.get("variables", {}),
    }
    with log.open("wb") as output:
        return subprocess.Popen(  # noqa: S603 - the servers of the registry
            server.command(bundle.resolve(), port),
            cwd=folder,
            env=_environment() | variables,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _environment() -> dict[str, str]:
    """This process's variables, but that Python keeps what it compiled, as it does by itself."""
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def _wait_for_answer(
    process: subprocess.Popen[bytes], server: Server, port: int, log: Path
) -> None:
    request = server.request("One sentence will do.")
    until = time.perf_counter() + _READY_SECONDS
    while time.perf_counter() < until:
        if process.poll() is not None:
            raise StartError(f"{server.title} ended with code {process.returncode}{_last(log)}")
        if asyncio.run(_ask(port, request)) == 200:
            return
        time.sleep(0.02)
    raise StartError(f"{server.title} gave no answer within {_READY_SECONDS:g} s{_last(log)}")


async def _ask(port: int, request: bytes, patience: float = 10.0) -> int:
    async with Client(port) as client:
        return (await client.send(request, patience)).status


def settled(running: Running, patience: float) -> bool:
    """Whether a short document is answered in time: what queued before it is then done."""
    request = running.server.request("One sentence will do.")
    return asyncio.run(_ask(running.port, request, patience)) == 200


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask the server to end, then end whatever it started that is still there."""
    family = family_of(process.pid)
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_END_SECONDS)
    _, alive = psutil.wait_procs(family, timeout=1)
    for each in alive:
        with suppress(psutil.Error):
            each.kill()
    psutil.wait_procs(alive, timeout=5)
    process.wait(5)


def family_of(pid: int) -> list[psutil.Process]:
    """A process and all that it started."""
    with suppress(psutil.Error):
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    return []


def _last(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return f"; its last words: {lines[-1].strip()[:300]}" if lines else ""
