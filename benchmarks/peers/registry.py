"""The servers that are compared: how each is started, its request and answer, its settings.

Which of its settings a server runs with under each load is measured: see `settings.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.load.loops import post
from benchmarks.servers.bundle import write_plain_bundle
from benchmarks.servers.process import (
    ROOT,
    Running,
    StartError,
    free_port,
    measured_python,
    run_server,
)
from models.errors import ConfigError

OURS, OURS_AUTO = "longdoc", "longdoc-auto"

Settings = Mapping[str, Any]
Scores = dict[str, float]


@dataclass(frozen=True)
class Server:
    """A server that classifies one document per request.

    package      its distribution, whose version the page shows
    tried        settings to choose among; `batch` 1 does not batch, `variables` are environment
                 variables
    wrap         a text as its request's body
    read         an answer as scores by label, given the labels in the bundle's order
    options      further options of its command line
    variables    environment variables that it is started with
    environment  the virtual environment it runs in, if not one of its own name
    basis        what its documentation recommends, and how that was followed
    """

    name: str
    title: str
    package: str
    tried: tuple[Settings, ...]
    path: str = "/classify"
    wrap: Callable[[str], object] = field(default=lambda text: {"input": text})
    read: Callable[[Any, list[str]], Scores] = field(default=lambda answer, _: answer["scores"])
    options: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    environment: str = ""
    basis: str = ""

    @property
    def is_ours(self) -> bool:
        """Whether it is Longdoc."""
        return self.name in (OURS, OURS_AUTO)

    @property
    def python(self) -> Path:
        """The interpreter of its environment; ours and plain FastAPI can do with this one."""
        if self.environment == OURS:
            return Path(measured_python())
        return ROOT / f".venv-peers-{self.name}" / "bin" / "python"

    def command(self, bundle: Path, port: int) -> list[str]:
        """What starts it."""
        if self.is_ours:
            where = ["--bundle", str(bundle), "--port", str(port), "--log-level", "warning"]
            return [str(self.python), "-m", "longdoc", "serve", *where, *self.options]
        return [str(self.python), "-m", f"benchmarks.peers.servers.with_{self.name}"]

    def request(self, text: str) -> bytes:
        """The HTTP request for one document."""
        return post(self.path, self.wrap(text))

    @contextmanager
    def run(self, bundle: Path, settings: Settings) -> Iterator[Running]:
        """The server from process start to its first classified document, then ended."""
        if not self.python.exists():
            raise StartError(f"{self.title} is not installed: run `make peers-setup`")
        port = free_port()
        with TemporaryDirectory(prefix="peer-", ignore_cleanup_errors=True) as folder:
            variables = {
                "PEER_BUNDLE": str(write_plain_bundle(bundle, Path(folder))),
                "PEER_PORT": str(port),
                "PEER_SETTINGS": json.dumps(dict(settings)),
                "BENTOML_HOME": folder,
                **self.variables,
                **settings.get("variables", {}),
            }
            command = self.command(bundle.resolve(), port)
            ready = self.request("One sentence will do.")
            with run_server(
                self.title, command, port, ready, variables=variables, folder=Path(folder)
            ) as running:
                yield running


def _our_scores(answer: Any, _: list[str]) -> Scores:
    return {each["label"]: each["score"] for each in answer["results"][0]["scores"]}


def _tensor(shape: tuple[int, ...]) -> Callable[[str], object]:
    tensor = {"name": "text", "shape": shape, "datatype": "BYTES"}
    return lambda text: {"inputs": [tensor | {"data": [text]}]}


def _tensor_scores(answer: Any, labels: list[str]) -> Scores:
    outputs = {output["name"]: output["data"] for output in answer["outputs"]}
    return dict(zip(labels, outputs["scores"], strict=True))


def _workers(**common: Any) -> tuple[Settings, ...]:
    """One worker per core or one with two threads; batches of up to 8 or 4, or none."""
    spread = ((2, 1, 1), (1, 2, 1), (2, 1, 8), (1, 2, 8), (2, 1, 4))
    return tuple({"workers": w, "threads": t, "batch": b, **common} for w, t, b in spread)


_RAY = {"replicas": 2, "threads": 1, "batch": 8, "wait_ms": 10, "ongoing": 16}
_RAY_FAST = {"RAY_SERVE_ENABLE_HA_PROXY": "1", "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1"}


def _ours(name: str, title: str, basis: str, options: tuple[str, ...] = ()) -> Server:
    return Server(
        name,
        title,
        "longdoc",
        tried=({},),
        wrap=lambda text: {"input": text, "top_k": None},
        read=_our_scores,
        options=options,
        environment=OURS,
        basis=basis,
    )


SERVERS: tuple[Server, ...] = (
    _ours(OURS, "Longdoc", "As `longdoc serve` starts it: every setting at its default."),
    _ours(
        OURS_AUTO,
        "Longdoc, `--precision auto`",
        "The same with the graph's precision chosen by the service.",
        ("--precision", "auto"),
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
        environment=OURS,
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
        tried=_workers(max_latency_ms=60_000),
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
            _RAY | {"batch": 1, "wait_ms": 0},
            _RAY | {"batch": 1, "wait_ms": 0, "variables": _RAY_FAST},
            _RAY,
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
        wrap=_tensor((1,)),
        read=_tensor_scores,
        basis="`max_batch_size` and `max_batch_time` over a custom runtime, `parallel_workers`, "
        "`debug` off; used by the Open Inference Protocol. Metrics are off.",
    ),
    Server(
        "triton",
        "NVIDIA Triton",
        "nvidia-pytriton",
        tried=_workers(wait_ms=1),
        path="/v2/models/classifier/infer",
        wrap=_tensor((1, 1)),
        read=_tensor_scores,
        basis="PyTriton, which carries the server and its Python backend: an instance per core, "
        "`max_batch_size` and `max_queue_delay_microseconds` of its dynamic batcher; used by the "
        "Open Inference Protocol. gRPC and metrics are off. Tritonserver's own ONNX Runtime "
        "backend does not come with it.",
    ),
)

#: Servers that were looked at and cannot serve the graph, with the reason.
LEFT_OUT: Mapping[str, str] = {
    "infinity": "it serves ONNX classifiers through Optimum's `ORTModelForSequenceClassification` "
    "and a Transformers pipeline: a Transformers configuration and the inputs `input_ids` and "
    "`attention_mask` are required, and there is no hook for other inputs. This graph takes `ids` "
    "and `lengths`.",
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
        raise ConfigError(f"unknown server {unknown[0]!r}; known: {', '.join(known)}")
    return [known[name] for name in names.split(",")]
