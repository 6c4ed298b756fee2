"""`longdoc verify URL` against real servers: ours, one of TEI's shape, and some that err."""

from __future__ import annotations

import itertools
import json
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from longdoc import main
from tests.support.serving import serving

QUICK = ["--long-words", "300"]


def _rows(output: str) -> dict[str, str]:
    marks = ("held", "FAILED", "not offered")
    rows = {}
    for line in output.splitlines():
        for mark in marks:
            if line.startswith(f"{mark} "):
                rows[line[13:49].strip()] = mark
    return rows


def test_our_own_service_holds(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(api_keys=("a-key-of-ours",)) as served:
        assert main(["verify", served.url, "--api-key", "a-key-of-ours", *QUICK]) == 0
        rows = _rows(capsys.readouterr().out)
        assert len(rows) >= 18
        assert set(rows.values()) == {"held"}
        assert main(["verify", served.url]) == 2
        assert "--api-key" in capsys.readouterr().err


def test_our_own_service_by_the_open_inference_protocol(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with serving() as served:
        assert main(["verify", served.url, "--model", "fake-linear", *QUICK]) == 0
        rows = _rows(capsys.readouterr().out)
        assert rows["five equal waves at once"] == "held"
        assert rows["receipts"] == rows["deadlines"] == "not offered"


@contextmanager
def _predicting(score: Callable[[str], float], status_of_junk: int = 422) -> Iterator[str]:
    """A server of text-embeddings-inference's shape."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Print nothing."""

        def do_GET(self) -> None:
            about = {"model_id": "a/b", "model_type": {"classifier": {}}}
            self._reply(200 if self.path == "/info" else 404, about)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            try:
                text = json.loads(body)["inputs"]
                assert isinstance(text, str)
                assert self.path == "/predict"
            except (ValueError, TypeError, KeyError, AssertionError, RecursionError):
                self._reply(status_of_junk, {"error": "junk"})
                return
            value = score(text)
            self._reply(200, [{"label": "a", "score": value}, {"label": "b", "score": 1 - value}])

        def _reply(self, status: int, content: object) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 256

        def handle_error(self, *_: object) -> None:
            """A caller who left is none."""

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def _sure(text: str) -> float:
    return (zlib.crc32(text.encode()) % 1000) / 1000


def test_a_server_of_another_shape_holds(capsys: pytest.CaptureFixture[str]) -> None:
    with _predicting(_sure) as url:
        assert main(["verify", url, *QUICK]) == 0
    output = capsys.readouterr().out
    assert "text-embeddings-inference" in output
    assert "FAILED" not in output


def test_what_does_not_hold_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    asked = itertools.count()
    with _predicting(lambda text: _sure(text) + next(asked) % 2 / 100, 500) as url:
        assert main(["verify", url, *QUICK]) == 1
    rows = _rows(capsys.readouterr().out)
    for name in ("five equal waves at once", "shuffled neighbours", "refuses no JSON"):
        assert rows[name] == "FAILED"


def test_nobody_there(capsys: pytest.CaptureFixture[str]) -> None:
    for url in ("http://127.0.0.1:9", "http://", "https://"):
        assert main(["verify", url]) == 2
        assert capsys.readouterr().err.startswith("longdoc verify: ")
