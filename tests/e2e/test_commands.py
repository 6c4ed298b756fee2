"""`longdoc serve` and `longdoc classify` as a user runs them, with a real bundle."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import httpx
import pytest

from tests.support.small_bundle import LABELS, SENTENCES, shared_bundle

LONGDOC = [sys.executable, "-m", "longdoc"]
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def bundle() -> Path:
    return shared_bundle().path


def longdoc(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [*LONGDOC, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **variables},
        cwd=ROOT,
    )


class Serving:
    """A `longdoc serve` process with what it prints."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.printed: list[str] = []
        self.logged: list[str] = []
        streams = ((process.stdout, self.printed), (process.stderr, self.logged))
        self._readers = [threading.Thread(target=self._read, args=pair) for pair in streams]
        for reader in self._readers:
            reader.start()

    @staticmethod
    def _read(stream: IO[str], lines: list[str]) -> None:
        with stream:
            lines.extend(stream)

    def wait_for(self, word: str) -> str:
        """Wait until a line with the word is printed; return it."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            for line in list(self.printed):
                if word in line:
                    return line
            assert self.process.poll() is None, "".join(self.logged)
            time.sleep(0.01)
        raise AssertionError(f"{word!r} was never printed: {self.printed} {self.logged}")

    @property
    def url(self) -> str:
        """Where it says that it serves."""
        found = re.search(r"http://\S+", self.wait_for("ready at"))
        assert found
        return found.group()

    def end(self) -> int:
        """Wait for the process and all that it printed."""
        code = self.process.wait(40)
        for reader in self._readers:
            reader.join(10)
        return code


@contextmanager
def serve(bundle: Path, *arguments: str, **variables: str) -> Iterator[Serving]:
    """A server on a free port, killed if the test leaves it running."""
    process = subprocess.Popen(
        [*LONGDOC, "serve", "--bundle", str(bundle), "--port", "0", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **variables},
        cwd=ROOT,
    )
    serving = Serving(process)
    try:
        yield serving
    finally:
        if process.poll() is None:
            process.kill()
        serving.end()


def test_serve_announces_itself_and_the_curl_line_works(bundle: Path) -> None:
    with serve(bundle) as serving:
        assert "ready at" in serving.wait_for("ready at")
        assert "small-linear" in serving.wait_for("model")
        assert "onnxruntime:cpu" in serving.wait_for("engine")
        curl = serving.wait_for("curl").split("try", 1)[1].strip()
        done = subprocess.run(
            shlex.split(curl), capture_output=True, text=True, timeout=30, check=True
        )
        answer = json.loads(done.stdout)
        assert answer["model"] == "small-linear"
        assert answer["results"][0]["label"] in LABELS
        info = httpx.get(serving.url + "/info").json()
        assert info["engine"]["provider"] == "CPUExecutionProvider"
        assert info["bundle_digest"] == shared_bundle().digest
        assert info["accuracy"] == {"accuracy": 0.25}
        assert info["self_test"]["largest_difference"] <= 1e-4


def test_sigterm_answers_what_was_accepted_refuses_the_rest_and_ends_with_0(bundle: Path) -> None:
    text = (" ".join(SENTENCES) + " ") * 1500
    with serve(bundle) as serving, ThreadPoolExecutor(1) as pool:
        url = serving.url
        with httpx.Client(base_url=url, timeout=60) as kept:
            assert kept.get("/healthz").status_code == 200
            accepted = pool.submit(httpx.post, url + "/classify", json={"input": text}, timeout=60)
            _wait_for_work(kept)
            serving.process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
            refused = kept.post("/classify", json={"input": "new"})
            assert refused.status_code == 503
            assert refused.headers["retry-after"]
            new = httpx.post(url + "/classify", json={"input": "new connection"})
            assert new.status_code == 503
        assert accepted.result(60).status_code == 200
        assert accepted.result().json()["results"][0]["tokens"]["windows"] > 100
        assert serving.end() == 0


def test_a_second_sigterm_ends_at_once(bundle: Path) -> None:
    text = (" ".join(SENTENCES) + " ") * 4000
    with serve(bundle) as serving, ThreadPoolExecutor(1) as pool:
        url = serving.url
        waiting = pool.submit(httpx.post, url + "/classify", json={"input": text}, timeout=60)
        with httpx.Client(base_url=url) as watching:
            _wait_for_work(watching)
        serving.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert serving.process.poll() is None
        serving.process.send_signal(signal.SIGTERM)
        assert serving.process.wait(2) == 128 + signal.SIGTERM
        with pytest.raises(httpx.TransportError):
            waiting.result(10)


def test_an_idle_server_ends_quickly(bundle: Path) -> None:
    with serve(bundle) as serving:
        url = serving.url
        with httpx.Client(base_url=url) as kept:  # an idle connection must not hold it up
            kept.get("/healthz")
            serving.process.send_signal(signal.SIGINT)
            assert serving.process.wait(5) == 0


def _wait_for_work(client: httpx.Client) -> None:
    deadline = time.monotonic() + 20
    while "longdoc_queue_depth 0.0" in client.get("/metrics").text:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_logs_are_json_lines_without_the_text(bundle: Path) -> None:
    with serve(bundle, LONGDOC_LOG_FORMAT="json") as serving:
        headers = {"x-request-id": "test-id-1"}
        body = {"input": "Confidential onions."}
        httpx.post(serving.url + "/classify", json=body, headers=headers)
        httpx.post(serving.url + "/classify", json={"input": ""})
        serving.process.send_signal(signal.SIGTERM)
        assert serving.end() == 0
    lines = [json.loads(line) for line in serving.logged]
    requests = [line for line in lines if line["message"] == "request"]
    assert [line["status"] for line in requests] == [200, 422]
    first = requests[0]
    assert first["id"] == "test-id-1"
    assert first["route"] == "/classify"
    assert first["tokens"] > 0
    assert {"tokenize_ms", "queue_ms", "infer_ms", "total_ms"} <= set(first)
    assert "onions" not in "".join(serving.logged)


@pytest.mark.parametrize(
    ("arguments", "variables", "sentence"),
    [
        (["--workers", "0"], {}, "--workers must be a whole number from 1"),
        (["--engine", "tensorrt"], {}, "--engine must be one of auto, onnxruntime"),
        ([], {"LONGDOC_MAX_BATCH_SIZE": "x"}, "LONGDOC_MAX_BATCH_SIZE must be a whole number"),
        ([], {"LONGDOC_API_KEYS": "short"}, "LONGDOC_API_KEYS must be keys of at least 8"),
        (["--bundle", "nothing"], {}, "there is no bundle 'nothing'"),
        (["--device", "cuda"], {}, "--device cpu"),
        (["--precision", "int8"], {}, "int8"),
        (["--attention", "performr"], {}, "did you mean 'performer'"),
        (["--attention", "performer"], {}, "no bundle of small has attention 'performer'"),
    ],
)
def test_a_wrong_value_stops_the_start_with_a_sentence(
    bundle: Path, arguments: list[str], variables: dict[str, str], sentence: str
) -> None:
    done = longdoc("serve", "--bundle", str(bundle), "--port", "0", *arguments, **variables)
    assert done.returncode == 2, done.stderr
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert "short" not in done.stderr or "API_KEYS" not in done.stderr


def test_a_port_that_is_taken(bundle: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = longdoc("serve", "--bundle", str(bundle), "--port", port)
    assert done.returncode == 2
    assert f"cannot listen on 127.0.0.1 port {port}" in done.stderr


def test_a_misspelt_variable_is_told(bundle: Path) -> None:
    with serve(bundle, LONGDOC_QUEUE_SECOND="1") as serving:
        serving.wait_for("ready at")
        serving.process.send_signal(signal.SIGTERM)
        serving.end()
    assert "did you mean LONGDOC_QUEUE_SECONDS" in "".join(serving.logged)


def test_classify_files_folders_and_standard_input(bundle: Path, tmp_path: Path) -> None:
    for index, sentence in enumerate(SENTENCES):
        (tmp_path / f"{index}.txt").write_text(sentence)
    (tmp_path / "ignored.md").write_text("not a text file")
    done = longdoc("classify", "--bundle", str(bundle), "--format", "jsonl", str(tmp_path))
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stderr
    assert [Path(line["file"]).name for line in lines] == [f"{i}.txt" for i in range(9)]
    assert all(line["label"] in LABELS and len(line["scores"]) == 3 for line in lines)
    piped = subprocess.run(
        [*LONGDOC, "classify", "--bundle", str(bundle), "--format", "jsonl", "--evidence", "1"],
        input=SENTENCES[0],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=ROOT,
    )
    answer = json.loads(piped.stdout)
    assert answer["file"] == "-"
    assert answer["score"] == pytest.approx(lines[0]["score"], abs=1e-4)
    assert answer["evidence"][0]["text"] in SENTENCES[0]


def test_classify_prints_a_table_and_tells_what_failed(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "good.txt").write_text(SENTENCES[3])
    (tmp_path / "empty.txt").write_text("  \n")
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00")
    done = longdoc("classify", "--bundle", str(bundle), *map(str, sorted(tmp_path.iterdir())))
    assert done.returncode == 1
    binary, empty, good = done.stdout.splitlines()
    assert "error: not UTF-8" in binary
    assert "error: the text is empty" in empty
    assert any(label in good for label in LABELS)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["missing.txt"], "missing.txt is neither a file nor a folder"),
        (["--top-k", "0", "README.md"], "--top-k must be at least 1"),
        (["--glob", "*.nothing", "docs"], "holds no file that matches"),
    ],
)
def test_classify_tells_a_mistake_in_the_command(arguments: list[str], sentence: str) -> None:
    done = longdoc("classify", *arguments)
    assert done.returncode == 2
    assert sentence in done.stderr


def test_serving_does_not_import_torch(bundle: Path) -> None:
    code = (
        "import sys\n"
        "from service.startup.deployment import load_deployment\n"
        "from service.http.server import Server\n"
        "from service.settings import Settings\n"
        f"load_deployment(Settings(bundle={str(bundle)!r})).start(Settings(), print).close()\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, cwd=ROOT)
