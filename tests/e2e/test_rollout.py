"""A rollout behind a real proxy: two services are replaced one after the other, under load."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from benchmarks.servers.process import free_port
from tests.support.small_bundle import SENTENCES, shared_bundle

ROOT = Path(__file__).parents[2]
HAPROXY = "haproxy"
DELAY = 2.0  # seconds, of which the proxy needs half a second to notice

# The proxy's defaults, but for how often it asks: retries are its own, for connections that fail.
CONFIG = """
defaults
    mode http
    timeout connect 2s
    timeout client 30s
    timeout server 30s
frontend texts
    bind 127.0.0.1:{front}
    default_backend services
backend services
    option httpchk GET /readyz
    default-server check inter 200ms fall 1 rise 1
    server a 127.0.0.1:{a}
    server b 127.0.0.1:{b}
"""


def _serve(port: int) -> subprocess.Popen[bytes]:
    """A service that is ready."""
    process = subprocess.Popen(
        [
            sys.executable, "-m", "longdoc", "serve", "--bundle", str(shared_bundle().path),
            "--port", str(port), "--drain-delay-seconds", str(DELAY), "--log-level", "error",
        ],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=5).status_code == 200:
                return process
        except httpx.TransportError:
            time.sleep(0.05)
    process.kill()
    raise TimeoutError("the service did not become ready")


@contextmanager
def _proxy(folder: Path, a: int, b: int) -> Iterator[str]:
    front = free_port()
    config = folder / "haproxy.cfg"
    config.write_text(CONFIG.format(front=front, a=a, b=b))
    process = subprocess.Popen([HAPROXY, "-f", str(config)], stderr=subprocess.DEVNULL)
    try:
        yield f"http://127.0.0.1:{front}"
    finally:
        process.terminate()
        process.wait()


class _Callers:
    """Four callers, half of whom keep their connections, who ask until they are stopped."""

    def __init__(self, url: str) -> None:
        self.outcomes: Counter[str] = Counter()
        self._url, self._stop = url, threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(n,)) for n in range(4)]

    def __enter__(self) -> _Callers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, number: int) -> None:
        with httpx.Client(base_url=self._url, timeout=30) as client:
            for n in range(1_000_000):
                if self._stop.is_set():
                    return
                closing = {"connection": "close"} if number % 2 else {}
                text = SENTENCES[n % 9] * (1 if n % 5 else 200)
                try:
                    answer = client.post("/classify", json={"input": text}, headers=closing)
                    self.outcomes[str(answer.status_code)] += 1
                except httpx.TransportError as error:
                    self.outcomes[type(error).__name__] += 1


def _wait_until_up(url: str, wanted: int) -> None:
    """Wait until so many requests in a row are answered."""
    deadline, good = time.monotonic() + 30, 0
    while good < wanted:
        assert time.monotonic() < deadline, "the proxy finds no service"
        try:
            good = good + 1 if httpx.get(f"{url}/healthz").status_code == 200 else 0
        except httpx.TransportError:  # it has not begun to listen
            good = 0
        time.sleep(0.05)


def test_a_rollout_loses_no_request(tmp_path: Path) -> None:
    ports = [free_port(), free_port()]
    services = [_serve(port) for port in ports]
    try:
        with _proxy(tmp_path, *ports) as url:
            _wait_until_up(url, 10)
            with _Callers(url) as callers:
                for index, port in enumerate(ports):
                    services[index].send_signal(signal.SIGTERM)
                    assert httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 503
                    assert services[index].wait(timeout=30) == 0
                    services[index] = _serve(port)
                    time.sleep(0.5)  # the proxy notices it before the other one leaves
            assert callers.outcomes.total() > 100
            assert set(callers.outcomes) == {"200"}, callers.outcomes
    finally:
        for process in services:
            process.kill()
            process.wait()


def test_after_the_first_signal_readiness_fails_and_requests_are_served() -> None:
    port = free_port()
    process = _serve(port)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
            process.send_signal(signal.SIGTERM)
            not_ready = client.get("/readyz")
            assert not_ready.status_code == 503
            assert not_ready.headers["connection"] == "close"
            served = client.post("/classify", json={"input": SENTENCES[0]})
            assert served.status_code == 200
            assert served.headers["connection"] == "close"
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("value", ["-1", "soon", "4000"])
def test_a_delay_that_makes_no_sense_is_refused(value: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "longdoc", "serve", f"--drain-delay-seconds={value}"],
        capture_output=True, text=True, check=False, cwd=ROOT, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2
    assert "drain-delay-seconds must be a number from 0 to 3,600" in done.stderr
