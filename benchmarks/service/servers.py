"""Starting and stopping the servers that are measured, and reading their memory."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

OURS, PLAIN, BATCHING = "longdoc", "plain FastAPI", "batching FastAPI"


@dataclass(frozen=True)
class Running:
    """A server process that answers."""

    port: int
    pid: int
    start_seconds: float

    def peak_bytes(self) -> int:
        """Most memory it has held."""
        return self._status("VmHWM")

    def resident_bytes(self) -> int:
        """Memory it holds now."""
        return self._status("VmRSS")

    def _status(self, name: str) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
        raise RuntimeError(f"the system does not tell {name}")


@contextmanager
def run_server(
    kind: str, bundle: Path, settings: Mapping[str, object] | None = None
) -> Iterator[Running]:
    """A server of one kind, from process start to ready; ended whatever happens."""
    port = _free_port()
    if kind == OURS:
        command = ["-m", "longdoc", "serve", "--bundle", str(bundle), "--port", str(port)]
        command += ["--log-level", "warning"]
        for name, value in (settings or {}).items():
            command += [f"--{name.replace('_', '-')}", str(value)]
    else:
        module = {PLAIN: "plain", BATCHING: "batching"}[kind]
        command = ["-m", f"benchmarks.service.{module}", str(bundle), str(port)]
    began = time.perf_counter()
    process = subprocess.Popen(  # noqa: S603 - our own servers
        [sys.executable, *command], stdout=subprocess.DEVNULL
    )
    try:
        _wait_until_ready(process, port)
        yield Running(port, process.pid, time.perf_counter() - began)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], port: int) -> None:
    until = time.perf_counter() + 120
    while time.perf_counter() < until:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with code {process.returncode}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.01)
    raise RuntimeError("the server did not become ready within two minutes")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
