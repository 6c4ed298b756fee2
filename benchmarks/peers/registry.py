"""The servers that are compared: how each is started, asked and understood, and its settings.

Which of the settings a peer runs with is decided by measurement: see `tuning.py`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
OURS = "longdoc"
LIMIT = "limit"

Settings = Mapping[str, Any]
Scores = dict[str, float]


@dataclass(frozen=True)
class Server:
    """A server that answers for one document at a time.

    package    its distribution, whose version is told
    tried      settings to choose among; `batch` 1 does not batch and is measured for the record;
               `variables` are environment variables
    wrap       a text as its request's body
    read       an answer as scores by label, given the labels in the bundle's order
    variables  environment variables that it is started with
    basis      what its documentation recommends, and how that was followed
    """

    name: str
    title: str
    package: str
    tried: tuple[Settings, ...]
    path: str = "/classify"
    wrap: Callable[[str], object] = field(default=lambda text: {"input": text})
    read: Callable[[Any, list[str]], Scores] = field(default=lambda answer, _: answer["scores"])
    variables: Mapping[str, str] = field(default_factory=dict)
    basis: str = ""

    @property
    def python(self) -> Path:
        """The interpreter of its environment; ours and plain FastAPI share this one."""
        if self.name in (OURS, "fastapi"):
            return Path(sys.executable)
        return ROOT / f".venv-peers-{self.name}" / "bin" / "python"

    def command(self, bundle: Path, port: int) -> list[str]:
        """What starts it."""
        if self.name == OURS:
            where = ["--bundle", str(bundle), "--port", str(port), "--log-level", "warning"]
            return [str(self.python), "-m", "longdoc", "serve", *where]
        return [str(self.python), "-m", f"benchmarks.peers.servers.with_{self.name}"]

    def request(self, text: str) -> bytes:
        """A whole HTTP request that asks for one document."""
        body = json.dumps(self.wrap(text)).encode()
        head = (
            f"POST {self.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: */*\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


def _our_scores(answer: Any, _: list[str]) -> Scores:
    return {each["label"]: each["score"] for each in answer["results"][0]["scores"]}


def _tensor(text: str) -> object:
    return {"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": [text]}]}


def _tensor_scores(answer: Any, labels: list[str]) -> Scores:
    outputs = {output["name"]: output["data"] for output in answer["outputs"]}
    return dict(zip(labels, outputs["scores"], strict=True))


def _workers(**common: Any) -> tuple[Settings, ...]:
    """A worker of one thread per core or one with two, batches of up to 8 or 4 or none."""
    spread = ((2, 1, 8), (1, 2, 8), (2, 1, 4), (2, 1, 1))
    return tuple({"workers": w, "threads": t, "batch": b, **common} for w, t, b in spread)


_RAY = {"replicas": 2, "threads": 1, "batch": 8, "wait_ms": 10, "ongoing": 16}
_RAY_FAST = {"RAY_SERVE_ENABLE_HA_PROXY": "1", "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1"}

SERVERS: tuple[Server, ...] = (
    Server(
        OURS,
        "Longdoc",
        "longdoc",
        tried=({},),
        wrap=lambda text: {"input": text, "top_k": None},
        read=_our_scores,
        basis="As `longdoc serve` starts it: every setting at its default.",
    ),
    Server(
        "fastapi",
        "plain FastAPI",
        "fastapi",
        tried=(
            {"workers": 1, "threads": 1},
            {"workers": 2, "threads": 1},
            {"workers": 1, "threads": 2},
        ),
        basis="A `def` route, which FastAPI runs in its thread pool, under Uvicorn with uvloop and "
        "httptools. It has no batching of its own.",
    ),
    Server(
        "litserve",
        "LitServe",
        "litserve",
        tried=(*_workers(wait_ms=10), {"workers": 2, "threads": 1, "batch": 8, "wait_ms": 50}),
        basis="`max_batch_size` and `batch_timeout` on the `LitAPI`; `workers_per_device` set to "
        "the number of cores, as its reference says for CPUs.",
    ),
    Server(
        "bentoml",
        "BentoML",
        "bentoml",
        tried=(
            *_workers(max_latency_ms=60_000),
            {"workers": 2, "threads": 1, "batch": 8, "max_latency_ms": 10_000},
        ),
        wrap=lambda text: {"input": [text]},
        read=lambda answer, _: answer[0]["scores"],
        variables={"BENTOML_DO_NOT_TRACK": "True"},
        basis="A `batchable` API, whose dispatcher adapts batch and window to the traffic; it "
        "takes a list, so each request is a list of one. `max_latency_ms` is the latency above "
        "which it refuses; `concurrency` is the batch size, as its guide says for batching. Access "
        "log and metrics are off.",
    ),
    Server(
        "ray",
        "Ray Serve",
        "ray",
        tried=(
            _RAY,
            _RAY | {"replicas": 1, "threads": 2, "ongoing": 32},
            _RAY | {"batch": 4},
            _RAY | {"batch": 1, "wait_ms": 0},
            _RAY | {"variables": _RAY_FAST},
            _RAY | {"batch": 4, "variables": _RAY_FAST},
        ),
        variables={"RAY_USAGE_STATS_ENABLED": "0"},
        basis="`serve.batch`, the model in a thread so that the replica goes on taking requests, "
        "`max_ongoing_requests` above the batch size so that the next batch gathers meanwhile; "
        "with and without its high-throughput mode (HAProxy in front). The dashboard is off.",
    ),
    Server(
        "mlserver",
        "MLServer",
        "mlserver",
        tried=(*_workers(wait_ms=10), {"workers": 0, "threads": 2, "batch": 8, "wait_ms": 10}),
        path="/v2/models/classifier/infer",
        wrap=_tensor,
        read=_tensor_scores,
        basis="`max_batch_size` and `max_batch_time` over a custom runtime, `parallel_workers`, "
        "`debug` off; asked by its own protocol. Metrics are off.",
    ),
)

#: Servers that were looked at and cannot serve the graph, with the reason.
LEFT_OUT: Mapping[str, str] = {
    "infinity": "it serves ONNX classifiers through Optimum's `ORTModelForSequenceClassification` "
    "and a Transformers pipeline: a Transformers configuration and the inputs `input_ids` and "
    "`attention_mask` are required, and there is no hook for other inputs. This graph takes `ids`, "
    "`lengths` and `explain`.",
    "text-embeddings-inference": "its ONNX backend always feeds `input_ids` and `attention_mask` "
    "and reads the sizes of a Transformers `config.json`; a graph with other inputs is refused by "
    "ONNX Runtime. It would have to be another graph, and the comparison is of servers.",
}


def find_servers(names: str | None) -> list[Server]:
    """The servers named, separated by commas, or all."""
    known = {server.name: server for server in SERVERS}
    if not names:
        return list(SERVERS)
    unknown = [name for name in names.split(",") if name not in known]
    if unknown:
        raise SystemExit(f"unknown server {unknown[0]!r}; known: {', '.join(known)}")
    return [known[name] for name in names.split(",")]
