"""The service as replicas on a real Ray cluster of two nodes."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from benchmarks.servers.process import free_port
from tests.support.small_bundle import SENTENCES, shared_bundle

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
LONGDOC = [sys.executable, "-m", "longdoc"]


def _kill(process: subprocess.Popen[str]) -> None:
    """End a process and all that it started: leaving in good order takes Ray minutes."""
    for part in [*psutil.Process(process.pid).children(recursive=True), process]:
        part.kill()
    process.wait()


@pytest.fixture(scope="module")
def nodes() -> Iterator[tuple[str, psutil.Process]]:
    """The cluster's address, and the process that all of it descends from."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.two_nodes"],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True,
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), psutil.Process(process.pid)
        _kill(process)


@pytest.fixture(scope="module")
def fleet(
    nodes: tuple[str, psutil.Process],
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    port = free_port()
    process = subprocess.Popen(
        [
            *LONGDOC, "serve", "--ray", nodes[0], "--replicas", "1:2", "--scale-above", "0.3",
            "--bundle", str(shared_bundle().path), "--port", str(port), "--queue-seconds", "2",
        ],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            if "ready at" in line:
                break
        yield f"http://127.0.0.1:{port}", process
        if process.poll() is None:
            _kill(process)


@pytest.fixture(scope="module")
def plain() -> Iterator[str]:
    port = free_port()
    command = [*LONGDOC, "serve", "--bundle", str(shared_bundle().path), "--port", str(port)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "ready at" in process.stdout.readline()
        yield f"http://127.0.0.1:{port}"
        process.terminate()
        process.stdout.read()


def _replicas(cluster: psutil.Process) -> list[psutil.Process]:
    """Those of this cluster: others may run on the same machine."""
    found = []
    for process in cluster.children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it ended meanwhile
            if "ServeReplica:longdoc" in " ".join(process.cmdline()):
                found.append(process)
    return found


REQUESTS: list[tuple[str, str, dict[str, object]]] = [
    ("POST", "/classify", {"json": {"input": SENTENCES[0], "evidence": 1}}),
    ("POST", "/classify", {"json": {"input": [*SENTENCES], "top_k": 1}}),
    ("POST", "/classify", {"json": {"input": SENTENCES[1] * 3000}}),
    ("POST", "/classify", {"content": SENTENCES[2], "headers": {"content-type": "text/plain"}}),
    ("POST", "/classify", {"json": {"input": " "}}),
    ("POST", "/classify", {"json": {"inputs": 3}}),
    ("POST", "/classify", {"content": b"{", "headers": {"content-type": "application/json"}}),
    ("POST", "/classify", {"content": b"x" * (9 << 20)}),
    ("POST", "/estimate", {"json": {"input": SENTENCES[0]}}),
    ("POST", "/classify", {"content": "a", "headers": {"content-type": "image/png"}}),
    ("GET", "/v2", {}),
    ("GET", "/healthz", {}),
    ("GET", "/readyz", {}),
    ("GET", "/classify", {}),
    ("GET", "/nothing", {}),
]


@pytest.mark.parametrize(("method", "path", "what"), REQUESTS)
def test_answers_are_those_of_the_plain_service(
    fleet: tuple[str, object], plain: str, method: str, path: str, what: dict[str, object]
) -> None:
    answers = [httpx.request(method, url + path, timeout=60, **what) for url in (fleet[0], plain)]  # type: ignore[arg-type]
    one, other = answers
    assert one.status_code == other.status_code
    assert one.headers.get("content-type") == other.headers.get("content-type")
    if one.headers.get("content-type", "").endswith("json"):
        assert _comparable(one.json()) == _comparable(other.json())
    else:
        assert one.text == other.text


def _comparable(value: object) -> object:
    """An answer without what differs from one to the next; numbers to five digits."""
    if isinstance(value, dict):
        own = {"id", "timings_ms", "queue_seconds", "latency_seconds", "seconds", "memory_bytes"}
        return {name: _comparable(each) for name, each in value.items() if name not in own}
    if isinstance(value, list):
        return [_comparable(each) for each in value]
    return round(value, 4) if isinstance(value, float) else value


def test_a_stream_flows_through_rays_proxy(fleet: tuple[str, object]) -> None:
    lines = "".join(json.dumps({"id": n, "input": SENTENCES[n % 9]}) + "\n" for n in range(50))
    answer = httpx.post(
        fleet[0] + "/classify/stream",
        content=lines,
        headers={"content-type": "application/x-ndjson"},
        timeout=60,
    )
    assert [json.loads(line)["id"] for line in answer.text.splitlines()] == list(range(50))


def test_a_full_queue_reaches_the_caller_with_its_retry_after(fleet: tuple[str, object]) -> None:
    text = SENTENCES[3] * 2000

    def ask(_: int) -> httpx.Response:
        return httpx.post(fleet[0] + "/classify", json={"input": text}, timeout=120)

    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        answers = list(pool.map(ask, range(256)))
    statuses = Counter(answer.status_code for answer in answers)
    assert set(statuses) <= {200, 429, 504}, statuses  # 504: others slow the machine down
    assert statuses[200] > 0
    assert statuses[429] > 0
    for answer in answers:
        if answer.status_code == 429:
            assert int(answer.headers["retry-after"]) >= 1
            assert answer.json()["type"] == "urn:longdoc:problem:overloaded"


def test_load_adds_a_replica_and_a_lost_one_loses_only_its_own_work(
    fleet: tuple[str, object], nodes: tuple[str, psutil.Process]
) -> None:
    text, stop = SENTENCES[4] * 400, threading.Event()
    outcomes: Counter[str] = Counter()

    def ask() -> None:
        while not stop.is_set():
            try:
                answer = httpx.post(fleet[0] + "/classify", json={"input": text}, timeout=60)
                outcomes[str(answer.status_code)] += 1
                if answer.status_code == 429:
                    time.sleep(0.05)
            except httpx.TransportError as error:
                outcomes[type(error).__name__] += 1

    threads = [threading.Thread(target=ask) for _ in range(24)]
    for thread in threads:
        thread.start()
    try:
        deadline = time.monotonic() + 120
        while len(_replicas(nodes[1])) < 2 and time.monotonic() < deadline:
            time.sleep(0.5)
        assert len(_replicas(nodes[1])) == 2, "no replica was added"
        before = outcomes.copy()
        assert set(before) <= {"200", "429", "503"}, before
        _replicas(nodes[1])[0].kill()
        time.sleep(5)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    lost = {name: count for name, count in outcomes.items() if name not in ("200", "429", "503")}
    # What the killed replica had accepted is lost, and each of its callers hears of it.
    assert sum(lost.values()) <= 24, outcomes
    assert set(lost) <= {"500", "502", "RemoteProtocolError", "ReadError"}, outcomes
    answer = httpx.post(fleet[0] + "/classify", json={"input": SENTENCES[0]}, timeout=60)
    assert answer.status_code == 200


def test_the_end_answers_what_was_accepted(
    fleet: tuple[str, subprocess.Popen[str]],
) -> None:
    url, process = fleet
    text = SENTENCES[5] * 20_000
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(httpx.post, url + "/classify", json={"input": text}, timeout=120)
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        assert waiting.result().status_code == 200
    assert process.wait(timeout=120) == 0


def test_the_configuration_is_one_that_ray_takes() -> None:
    done = subprocess.run(
        [*LONGDOC, "ray-config", "--replicas", "2:6", "--cores", "4", "--queue-seconds", "2"],
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    read = """
import json, sys, yaml
from ray.serve.schema import ServeDeploySchema
print(ServeDeploySchema.model_validate(yaml.safe_load(sys.stdin)).model_dump_json())
"""
    taken = subprocess.run(
        [sys.executable, "-c", read], input=done.stdout, capture_output=True, text=True, check=True
    )
    application = json.loads(taken.stdout)["applications"][0]
    assert application["import_path"] == "service.cluster.deployment:build"
    assert application["args"]["settings"]["queue_seconds"] == "2"
    deployment = application["deployments"][0]
    assert deployment["autoscaling_config"]["max_replicas"] == 6
    assert deployment["ray_actor_options"]["num_cpus"] == 4


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--replicas", "some"], "--replicas must be MIN or MIN:MAX"),
        (["--replicas", "3:2"], "1 <= MIN <= MAX"),
        (["--cores", "0"], "--cores must be at least 1"),
        (["--queue-seconds", "never"], "queue-seconds must be a number"),
        (["--scale-above", "0"], "--scale-above must be more than 0"),
    ],
)
def test_a_mistake_is_told_before_ray_starts(arguments: list[str], sentence: str) -> None:
    done = subprocess.run(
        [*LONGDOC, "ray-config", *arguments],
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 2
    assert re.search(re.escape(sentence), done.stderr)
