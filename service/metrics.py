"""What the service counts, for Prometheus: seconds and bytes, few buckets, bounded labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from service.engines.base import EngineInfo
from service.output import dropped_lines
from service.pipeline import Answer
from service.scheduling.scheduler import BatchRun

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_CLIENT_LEFT, _REFUSED = 499, 429
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_TOKENS = (32, 128, 512, 2048, 8192, 32_768, 131_072)


class Metrics:
    """One registry per application, so that two applications in a process do not mix."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self.requests = Counter(
            "longdoc_requests",
            "Requests answered, by route and status",
            ["route", "status"],
            registry=self.registry,
        )
        self.request_seconds = Histogram(
            "longdoc_request_seconds",
            "Time from a request's first byte to its answer",
            ["route"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._by_answer: dict[tuple[str, int], tuple[Counter, Histogram]] = {}  # found before
        self.tokenize_seconds = self._histogram(
            "tokenize_seconds", "Time spent tokenizing a request's texts", _SECONDS
        )
        self.queue_seconds = self._histogram(
            "queue_seconds", "Time a document's run waited for a worker", _SECONDS
        )
        self.infer_seconds = self._histogram(
            "infer_seconds", "Time of one run of the engine", _SECONDS
        )
        self.documents = self._counter("documents", "Documents answered")
        self.tokens = self._counter("tokens", "Tokens read")
        self.unread_tokens = self._counter(
            "unread_tokens", "Tokens of truncated documents that were not read"
        )
        self.wasted_tokens = self._counter(
            "wasted_tokens", "Tokens that were run although nobody waited for the answer any more"
        )
        self.document_tokens = self._histogram("document_tokens", "Tokens of a document", _TOKENS)
        self.batch_size = self._histogram(
            "batch_size", "Documents in one run", (1, 2, 4, 8, 16, 32)
        )
        self.all_cores = self._counter("all_core_runs", "Runs of a document on every core")
        self.padding = self._counter("padding_tokens", "Tokens of padding that were run")
        self.rejected = self._counter("rejected_requests", "Requests refused with 429")
        self.truncated = self._counter("truncated_documents", "Documents whose end was not read")
        self.windowed = self._counter("windowed_documents", "Documents read in several windows")
        self.disconnected = self._counter(
            "disconnected_requests", "Requests whose caller left before the answer"
        )
        self.queue_depth = self._gauge("queue_depth", "Jobs that wait or run")
        self.queue_work = self._gauge(
            "predicted_queue_seconds", "Predicted work of one core that waits or runs"
        )
        self.in_flight = self._gauge("requests_in_flight", "Requests that are being answered")
        self.held_bytes = self._gauge("held_bytes", "Bytes of callers that are kept in memory")
        self.registry.register(_DroppedLines())
        self.ready = self._gauge("ready", "1 when the service is ready")
        self.engine = Gauge(
            "longdoc_engine_info",
            "What in truth runs the network; always 1",
            ["engine", "device", "provider", "precision", "reason"],
            registry=self.registry,
        )

    def show_engine(self, info: EngineInfo) -> None:
        """Publish what runs the network, and why it was chosen."""
        self.engine.labels(
            info.engine, info.device, info.provider, info.precision, info.reason
        ).set(1)

    def count_request(self, route: str, status: int, seconds: float) -> None:
        """Count one answered request."""
        counters = self._by_answer.get((route, status))
        if counters is None:
            counters = self.requests.labels(route, str(status)), self.request_seconds.labels(route)
            self._by_answer[route, status] = counters
        counters[0].inc()
        counters[1].observe(seconds)
        if status == _REFUSED:
            self.rejected.inc()
        elif status == _CLIENT_LEFT:
            self.disconnected.inc()

    def count_answer(self, answer: Answer) -> int:
        """Count the documents of an answer; return the tokens that were read."""
        tokens = 0
        for result in answer.results:
            read = result.tokens
            tokens += read.used
            self.document_tokens.observe(read.total)
            if read.truncated:
                self.truncated.inc()
                self.unread_tokens.inc(read.total - read.used)
            if read.windows > 1:
                self.windowed.inc()
        self.documents.inc(len(answer.results))
        self.tokens.inc(tokens)
        self.tokenize_seconds.observe(answer.tokenize)
        return tokens

    def observe_run(self, run: BatchRun) -> None:
        """Count one run of the engine."""
        self.infer_seconds.observe(run.seconds)
        self.batch_size.observe(len(run.tokens))
        if run.all_cores:
            self.all_cores.inc()
        if len(run.tokens) > 1:
            self.padding.inc(len(run.tokens) * max(run.tokens) - sum(run.tokens))
        for wait in run.waits:
            self.queue_seconds.observe(wait)

    def text(self) -> bytes:
        """All of it in Prometheus's text format."""
        return generate_latest(self.registry)

    def _histogram(self, name: str, meaning: str, bounds: Sequence[float]) -> Histogram:
        return Histogram(f"longdoc_{name}", meaning, buckets=bounds, registry=self.registry)

    def _counter(self, name: str, meaning: str) -> Counter:
        return Counter(f"longdoc_{name}", meaning, registry=self.registry)

    def _gauge(self, name: str, meaning: str) -> Gauge:
        return Gauge(f"longdoc_{name}", meaning, registry=self.registry)


class _DroppedLines(Collector):
    """Read off when somebody asks: the lines are dropped where no application is known."""

    def collect(self) -> Iterator[CounterMetricFamily]:
        """The one sample."""
        yield CounterMetricFamily(
            "longdoc_dropped_log_lines",
            "Lines of output that nobody read or that could not be written",
            dropped_lines(),
        )
