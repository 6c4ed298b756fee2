"""`longdoc loadtest` as a user runs it, against real servers."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import httpx
import psutil
import pytest

from benchmarks.records import LoadTest, Requests
from benchmarks.store import Store
from models.bundle import find_bundles
from service.engines.fake import FakeEngine
from tests.support.serving import LABELS, fake_deployment, serving, wait_until

LONGDOC = [sys.executable, "-m", "longdoc", "loadtest"]
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "results.sqlite")


@contextmanager
def loading(store: Store, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A load test under way, ended if the test leaves it."""
    process = subprocess.Popen(
        [*LONGDOC, *arguments, "--store", str(store.path)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        preexec_fn=_can_be_interrupted,  # noqa: PLW1509 - sets a signal, no more
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(30)


def _can_be_interrupted() -> None:
    """Also where the tests run in a shell's background, which makes children deaf to Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def load(store: Store, *arguments: str) -> tuple[int, str, str]:
    """A load test to its end: its code and what it said."""
    with loading(store, *arguments) as process:
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err


def records(store: Store) -> list[tuple[LoadTest, Requests]]:
    """What was stored, with the raw requests."""
    found = []
    for number, test in store.load().load_tests:
        requests = store.requests(number)
        assert requests is not None
        found.append((test, requests))
    return found


def test_refusals_are_counted_as_the_service_counts_them(store: Store, tmp_path: Path) -> None:
    slow = FakeEngine(len(LABELS), lambda batch, _n: 0.05 * batch)
    report = tmp_path / "report.html"
    with serving(fake_deployment(slow), workers=1, long_workers=0, queue_seconds=0.3) as served:
        code, out, err = load(
            store, served.url, "--rate", "60", "--seconds", "3", "--warm-up", "1",
            "--lengths", "20", "--mix", "interactive=4,evidence=1,v2=1,batch=1",
            "--batch-size", "2", "--pool", "8", "--html", str(report),
            "--fail-above", "errors=1%", "--fail-above", "p99=60s",
        )  # fmt: skip
        metric = float(re.findall(r"(?m)^longdoc_rejected_requests_total (\S+)",
                                  served.get("/metrics").text)[0])  # fmt: skip
    [(test, requests)] = records(store)
    refused = "429 Too Many Requests"
    assert test.errors[refused] > 20
    assert test.errors[refused] + test.warm_up_errors.get(refused, 0) == metric
    assert requests.status.count(429) == metric
    assert test.settings["refused"] == {"here": metric, "service": metric}
    assert f"{metric:.0f} refused, as the service's own metric says" in err
    assert test.note == "" or "bottleneck" in test.note
    assert code == 1  # errors are above one percent; p99 is not above a minute
    assert "errors are" in out
    assert "p99 is" not in out
    assert {kind.request for kind in test.by_request} == {"interactive", "evidence", "v2", "batch"}
    assert test.metrics_before
    assert test.metrics_after
    assert test.service_memory_bytes
    assert test.requests == sum(due >= 0 for due in requests.due)
    html = report.read_text()
    assert "429 Too Many Requests" in html
    assert "longdoc_rejected_requests_total" in html
    assert not re.search(r"(src|href)=", html)


def test_a_killed_service_is_a_report_and_no_traceback(store: Store, tmp_path: Path) -> None:
    bundle = find_bundles()[0]
    report = tmp_path / "report.html"
    with loading(
        store, "--bundle", str(bundle), "--rate", "25", "--seconds", "5", "--warm-up", "0.5",
        "--lengths", "30", "--pool", "4", "--html", str(report),
    ) as process:  # fmt: skip
        service = _service_of(process)
        wait_until(lambda: _documents(service) > 30, 60)
        service.kill()
        out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Traceback" not in out + err
    [(test, _)] = records(store)
    assert test.errors["connection refused"] > 5
    assert "did not answer any more" in test.note
    assert "connection refused" in err
    assert "connection refused" in report.read_text()
    assert test.requests > sum(test.errors.values()) > 0
    assert test.bundle is not None
    assert test.bundle.name == bundle.name
    assert not test.metrics_after


def test_terminated_it_keeps_what_there_is_and_leaves_nothing_behind(
    store: Store, tmp_path: Path
) -> None:
    report = tmp_path / "report.html"
    with loading(
        store, "--bundle", str(find_bundles()[0]), "--rate", "25", "--seconds", "60",
        "--warm-up", "0.5", "--lengths", "30", "--pool", "4", "--workers", "2",
        "--html", str(report),
    ) as process:  # fmt: skip
        service = _service_of(process)
        wait_until(lambda: _documents(service) > 60, 60)
        started = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in out + err
    assert len(started) >= 4  # the service, Locust's master and two workers
    assert not [each for each in started if each.is_running()]
    [(test, _)] = records(store)
    assert test.note.startswith("interrupted")
    assert test.requests > 20
    assert test.documents_per_second == pytest.approx(25, rel=0.6)
    assert "interrupted" in report.read_text()


def test_the_schedule_is_kept_while_the_service_stalls(store: Store) -> None:
    engine = FakeEngine(len(LABELS))
    with serving(fake_deployment(engine), queue_seconds=60) as served, loading(
        store, served.url, "--rate", "30", "--seconds", "4", "--warm-up", "1",
        "--lengths", "20", "--pool", "4", "--workers", "2",
    ) as process:  # fmt: skip
        count = len(engine.runs)
        wait_until(lambda: len(engine.runs) > count + 45, 60)
        engine.seconds = lambda _batch, _n: 1.5
        time.sleep(1.0)
        engine.seconds = lambda _batch, _n: 0.0
        _, err = process.communicate(timeout=60)
    [(test, requests)] = records(store)
    assert not test.errors, err
    measured = sorted(due for due in requests.due if due >= 0)
    assert 80 < len(measured) < 165  # 120 on average
    gaps = [b - a for a, b in pairwise(measured)]
    assert max(gaps) < 0.6  # nobody waited for the stall to send the next
    assert max(requests.seconds) > 1.0  # and the stall is in the latencies
    assert test.p99 is not None
    assert test.p99 > 1.0
    assert test.generator is not None
    assert test.generator.processes == 2
    assert sum(second.sent for second in test.by_second) == len(measured)


@pytest.mark.parametrize("workers", ["0", "2"])
def test_loads_are_steered_from_the_browser(store: Store, workers: str) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    page = f"http://127.0.0.1:{port}"
    with serving() as served, loading(
        store, served.url, "--users", "2", "--web", "--web-port", str(port), "--warm-up", "0.5",
        "--lengths", "20", "--pool", "4", "--mix", "interactive,bulk", "--bulk-size", "3",
        "--workers", workers,
    ) as process:  # fmt: skip
        wait_until(lambda: _workers(page) == int(workers), 60)
        for number in (1, 2):
            httpx.post(f"{page}/swarm", data={"user_count": "2", "spawn_rate": "2"}, timeout=30)
            time.sleep(2.5)
            httpx.post(f"{page}/stop", timeout=30)
            wait_until(lambda wanted=number: len(store.load().load_tests) == wanted, 30)
        stats = httpx.get(f"{page}/stats/requests", timeout=30).json()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    found = records(store)
    assert len(found) == 2, err
    for test, requests in found:
        assert test.requests > 5
        assert not test.errors
        assert test.users == 2
        assert set(requests.request) == {"interactive", "bulk"}
        assert test.seconds < max(requests.due) + 1.0  # not until the workers' last reports
    assert {row["method"] for row in stats["stats"]} >= {"interactive", "bulk"}
    assert "Traceback" not in out + err


def _service_of(process: subprocess.Popen[str]) -> psutil.Process:
    found: list[psutil.Process] = []

    def look() -> bool:
        assert process.poll() is None, "the load test has ended"
        children = psutil.Process(process.pid).children(recursive=True)
        found.extend(child for child in children if "serve" in child.cmdline())
        return bool(found)

    wait_until(look, 60)
    return found[0]


def _documents(service: psutil.Process) -> float:
    """How many documents a service has answered."""
    ports = [c.laddr.port for c in service.net_connections() if c.status == psutil.CONN_LISTEN]
    if not ports:
        return 0.0
    try:
        metrics = httpx.get(f"http://127.0.0.1:{ports[0]}/metrics", timeout=10).text
    except httpx.HTTPError:
        return 0.0
    return float(re.findall(r"(?m)^longdoc_documents_total (\S+)", metrics)[0])


def _workers(page: str) -> int | None:
    """How many workers Locust's page knows of; None while there is no page."""
    try:
        return len(httpx.get(f"{page}/stats/requests", timeout=5).json().get("workers", ()))
    except (httpx.HTTPError, ValueError):
        return None
