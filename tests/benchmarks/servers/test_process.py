"""Servers start, answer, are watched, and end with all their processes."""

from __future__ import annotations

import sys
import time

import psutil
import pytest

from benchmarks.documents.making import Document
from benchmarks.load.loops import get
from benchmarks.load.sending import every_document_once, send
from benchmarks.peers.servers.bare import plan_runs
from benchmarks.servers.bare_engine import measure_bare
from benchmarks.servers.memory import forget_peak, status_bytes
from benchmarks.servers.monitor import Monitor
from benchmarks.servers.process import StartError, family_of, free_port, run_server
from tests.support.small_bundle import SENTENCES, shared_bundle

_SERVER = """
import subprocess, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass

ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def test_a_server_is_ended_with_the_processes_it_started() -> None:
    port = free_port()
    with run_server("a server", [sys.executable, "-c", _SERVER, str(port)], port, get("/")) as it:
        family = family_of(it.pid)
        assert len(family) == 2
        assert it.start_seconds > 0
        documents = [Document("one", 1)] * 40
        load = every_document_once("test", documents, clients=4)
        sent = send(it, load, load.requests(lambda _: get("/")))
        assert {each.sample.status for each in sent.exchanges} == {200}
        assert sent.monitor.most >= sent.monitor.idle > 10 << 20
        assert sent.monitor.cores["generator"] > 0
    assert not any(psutil.pid_exists(process.pid) for process in family)


def test_a_server_that_ends_says_why() -> None:
    command = [sys.executable, "-c", "raise SystemExit('no license')"]
    with (
        pytest.raises(StartError, match="a server did not start: no license"),
        run_server("a server", command, free_port(), get("/")),
    ):
        pass
    with pytest.raises(StartError, match="No such file"), run_server("it", ["/no/such"], 1, b""):
        pass


def test_processor_time_of_the_generator_is_told_from_others() -> None:
    with Monitor(family_of(1)[0].pid) as monitor:
        until = time.process_time() + 0.2
        while time.process_time() < until:
            pass
    assert 0 < monitor.cores["generator"] <= 1.1
    assert 0 <= monitor.others_share <= 1


def test_the_peak_of_memory_can_be_forgotten() -> None:
    held = bytearray(64 << 20)
    assert status_bytes("VmHWM") >= len(held)
    del held
    before = status_bytes("VmHWM")
    forget_peak()
    assert status_bytes("VmRSS") <= status_bytes("VmHWM") < before


def test_runs_of_the_bare_engine_hold_every_document_once() -> None:
    lengths = [512, 510, 40, 41, 2000, 511, 42, 43, 44, 600]
    alone = plan_runs(lengths, batched=False)
    together = [[lengths[index] for index in batch] for batch in plan_runs(lengths, batched=True)]
    assert [lengths[batch[0]] for batch in alone] == sorted(lengths)
    assert together == [[40, 41, 42, 43, 44], [510, 511], [512], [600], [2000]]


def test_the_bare_engine_gives_the_same_scores_batched_or_not() -> None:
    documents = {"some": [Document(text, 0) for text in SENTENCES]}
    path = shared_bundle().path
    alone, batched = (measure_bare(path, documents, batched=b)["some"] for b in (False, True))
    assert alone.seconds > 0
    assert len(alone.each) == len(SENTENCES)
    for one, other in zip(alone.scores, batched.scores, strict=True):
        assert one == pytest.approx(other, abs=1e-4)
