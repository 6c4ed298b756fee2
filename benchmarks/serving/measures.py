"""The measurements. Each returns figures with the raw samples they were computed from.

Servers that are compared take turns, round by round, so that noise on the machine hits all
alike; a ratio is the median of the rounds' ratios.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from benchmarks.serving.documents import Document, log_normal_lengths, make_documents
from benchmarks.serving.load import Sample, closed_loop, open_loop, percentile, run_load, span
from benchmarks.serving.servers import BATCHING, OURS, PLAIN, Running, run_server
from models.bundle import load_bundle
from service.cores import usable_cores
from service.engines import open_engine

SHORT = 512  # tokens: a document below is called short
LONG = 16_384


@dataclass(frozen=True)
class Plan:
    """How much to measure; `quick` shows that all works, `full` gives the figures."""

    rounds: int
    documents: int
    open_seconds: float
    overload_seconds: float
    starts: int


QUICK = Plan(rounds=1, documents=120, open_seconds=8, overload_seconds=8, starts=2)
FULL = Plan(rounds=5, documents=1000, open_seconds=60, overload_seconds=60, starts=10)


def overhead(bundle: Path, plan: Plan) -> dict[str, Any]:
    """Documents per second over HTTP against the bare engine on the same cores and texts."""
    tokenizer = _tokenizer(bundle)
    cases: dict[str, list[int]] = {
        "512": [512] * plan.documents,
        "4096": [4096] * max(20, plan.documents // 6),
        "mixed": log_normal_lengths(plan.documents, seed=1),
    }
    found: dict[str, Any] = {}
    for name, lengths in cases.items():
        documents = make_documents(tokenizer, lengths, seed=2)
        rounds = []
        with run_server(OURS, bundle) as server:
            _warm_up(server, documents)
            for _ in range(plan.rounds):
                bare = len(documents) / _bare_seconds(bundle, documents)
                samples = run_load(closed_loop(server.port, documents, clients=16))
                _demand_200(samples)
                served = len(samples) / span(samples)
                rounds.append({"bare": bare, "served": served, "ratio": served / bare})
        found[name] = {"rounds": rounds, "ratio": _median(rounds, "ratio")}
    return found


def _bare_seconds(bundle_path: Path, documents: Sequence[Document]) -> float:
    """One single-thread session, a thread a core, longest first: text to logits, no HTTP."""
    bundle = load_bundle(bundle_path)
    engine, tokenizer = open_engine(bundle, threads=1), _tokenizer(bundle_path)
    waiting = sorted(documents, key=lambda document: document.tokens)

    def lane() -> None:
        while True:
            try:
                document = waiting.pop()
            except IndexError:
                return
            encoding = tokenizer.encode_batch_fast([document.text], add_special_tokens=False)[0]
            ids = np.array(encoding.ids)[None]  # (1, n)
            engine.run(ids, np.array([ids.shape[1]]))

    for document in documents[:3]:  # the first runs allocate
        ids = np.array(tokenizer.encode(document.text, add_special_tokens=False).ids)[None]
        engine.run(ids, np.array([ids.shape[1]]))
    threads = [threading.Thread(target=lane) for _ in range(usable_cores())]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began


def mixed(bundle: Path, plan: Plan) -> dict[str, Any]:
    """Log-normal lengths, 32 clients, every document once: ours against both baselines."""
    documents = make_documents(_tokenizer(bundle), log_normal_lengths(plan.documents, 1), seed=2)
    rounds: list[dict[str, Any]] = []
    for _ in range(plan.rounds):
        row: dict[str, Any] = {}
        for kind in (OURS, PLAIN, BATCHING):
            with run_server(kind, bundle) as server:
                _warm_up(server, documents)
                samples = run_load(closed_loop(server.port, documents, clients=32))
                row[kind] = {
                    "documents_per_second": len(samples) / span(samples),
                    "p50": percentile(samples, 50),
                    "p99": percentile(samples, 99),
                    "p99_short": percentile(_short(samples), 99),
                    "peak_bytes": server.peak_bytes(),
                    "failed": sum(sample.status != 200 for sample in samples),
                    "samples": _raw(samples),
                }
        rounds.append(row)
    return {
        "rounds": rounds,
        "throughput_over_plain": _ratio(rounds, OURS, PLAIN, "documents_per_second"),
        "throughput_over_batching": _ratio(rounds, OURS, BATCHING, "documents_per_second"),
        "p50_over_plain": _ratio(rounds, OURS, PLAIN, "p50"),
        "p50_over_batching": _ratio(rounds, OURS, BATCHING, "p50"),
        "p99_over_plain": _ratio(rounds, OURS, PLAIN, "p99"),
    }


def short_behind_long(bundle: Path, plan: Plan) -> dict[str, Any]:
    """5% at 16,384 tokens among short ones, 60% of capacity offered, on schedule."""
    count = max(100, plan.documents)
    lengths = [min(length, SHORT - 1) for length in log_normal_lengths(count, seed=3)]
    lengths[::20] = [LONG] * len(lengths[::20])
    documents = make_documents(_tokenizer(bundle), lengths, seed=4)
    rate = 0.6 * len(documents) / _bare_seconds(bundle, documents)
    rounds: list[dict[str, Any]] = []
    for number in range(plan.rounds):
        row: dict[str, Any] = {}
        for kind in (OURS, PLAIN):
            with run_server(kind, bundle) as server:
                _warm_up(server, documents)
                samples = run_load(
                    open_loop(server.port, documents, rate, plan.open_seconds, seed=number)
                )
                row[kind] = {
                    "p99_short": percentile(_short(samples), 99),
                    "p50_short": percentile(_short(samples), 50),
                    "p99_long": percentile([s for s in samples if s.tokens >= SHORT], 99),
                    "peak_bytes": server.peak_bytes(),
                    "failed": sum(sample.status != 200 for sample in samples),
                    "samples": _raw(samples),
                }
        rounds.append(row)
    return {
        "rate": rate,
        "rounds": rounds,
        "p99_short_over_plain": _ratio(rounds, OURS, PLAIN, "p99_short"),
        "p99_long_over_plain": _ratio(rounds, OURS, PLAIN, "p99_long"),
        "peak_bytes_over_plain": _ratio(rounds, OURS, PLAIN, "peak_bytes"),
    }


def overload(bundle: Path, plan: Plan) -> dict[str, Any]:
    """Five times capacity, then normal load: goodput, refusals, memory, recovery."""
    documents = make_documents(_tokenizer(bundle), log_normal_lengths(300, seed=5), seed=6)
    with run_server(OURS, bundle) as server:
        _warm_up(server, documents)
        before = run_load(closed_loop(server.port, documents, clients=16))
        peak = len(before) / span(before)
        normal = run_load(open_loop(server.port, documents, 0.3 * peak, 5.0, seed=1))
        memory: list[int] = []
        flood = run_load(
            open_loop(
                server.port,
                documents,
                5 * peak,
                plan.overload_seconds,
                seed=2,
                tick=_every(0.25, lambda: memory.append(server.resident_bytes())),
            )
        )
        after = run_load(open_loop(server.port, documents, 0.3 * peak, 15.0, seed=3))
        peak_bytes = server.peak_bytes()
    good = [s for s in flood if s.status == 200 and s.due + s.seconds <= plan.overload_seconds]
    refused = [s.seconds for s in flood if s.status in (429, 503)]
    usual = percentile(normal, 95)
    slow = [s.due for s in after if s.seconds > 2 * usual and s.tokens < SHORT]
    statuses: dict[str, int] = {}
    for sample in flood:
        statuses[str(sample.status)] = statuses.get(str(sample.status), 0) + 1
    return {
        "peak_documents_per_second": peak,
        "offered_per_second": 5 * peak,
        "goodput_over_peak": len(good) / plan.overload_seconds / peak,
        "statuses": statuses,
        "refusal_seconds_p50": float(np.median(refused)) if refused else None,
        "refusal_seconds_p99": float(np.percentile(refused, 99)) if refused else None,
        "peak_bytes": peak_bytes,
        "resident_bytes": memory,
        "usual_p95": usual,
        "recovered_after_seconds": max(slow, default=0.0),
        "samples": _raw(flood),
    }


def cold_start(bundle: Path, plan: Plan) -> dict[str, Any]:
    """Seconds from process start to the first 200 on /readyz."""
    seconds = []
    for _ in range(plan.starts):
        with run_server(OURS, bundle) as server:
            seconds.append(server.start_seconds)
    return {"seconds": seconds, "median": float(np.median(seconds)), "most": max(seconds)}


MEASURES: dict[str, Callable[[Path, Plan], dict[str, Any]]] = {
    "overhead": overhead,
    "mixed": mixed,
    "short_behind_long": short_behind_long,
    "overload": overload,
    "cold_start": cold_start,
}


def plan_values(plan: Plan) -> dict[str, Any]:
    """A plan for the record."""
    return asdict(plan)


def _tokenizer(bundle: Path) -> Tokenizer:
    return Tokenizer.from_file(str(bundle / "tokenizer.json"))


def _warm_up(server: Running, documents: Sequence[Document]) -> None:
    run_load(closed_loop(server.port, documents[:40], clients=4))


def _demand_200(samples: Sequence[Sample]) -> None:
    wrong = {sample.status for sample in samples} - {200}
    if wrong:
        raise RuntimeError(f"answered {wrong} instead of 200")


def _short(samples: Sequence[Sample]) -> list[Sample]:
    return [sample for sample in samples if sample.tokens < SHORT]


def _raw(samples: Sequence[Sample]) -> list[list[float]]:
    """Tokens, seconds and status of each request."""
    return [[s.tokens, round(s.seconds, 5), s.status] for s in samples]


def _median(rounds: Sequence[dict[str, float]], name: str) -> float:
    return float(np.median([row[name] for row in rounds]))


def _ratio(rounds: Sequence[dict[str, Any]], first: str, second: str, name: str) -> float:
    return float(np.median([row[first][name] / row[second][name] for row in rounds]))


def _every(seconds: float, call: Callable[[], None]) -> Callable[[], None]:
    last = 0.0

    def tick() -> None:
        nonlocal last
        if time.monotonic() - last >= seconds:
            last = time.monotonic()
            call()

    return tick
