"""The measurements. Each returns figures with the raw samples they were computed from.

What is compared takes turns, round by round, so that noise on the machine hits all alike; a
ratio is the median of the rounds' ratios.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from benchmarks.quiet import Taken, undisturbed
from benchmarks.service.bare import ALONE, GROUP_BELOW, TOGETHER, BareEngine
from benchmarks.service.documents import Document, log_normal_lengths, make_documents
from benchmarks.service.load import Sample, closed_loop, open_loop, percentile, run_load, span
from benchmarks.service.plans import Plan
from benchmarks.service.servers import BATCHING, OURS, PLAIN, Running, run_server
from benchmarks.service.usage import Meter

SHORT = 512  # tokens: a document below is called short
LONG = 16_384
_USUALLY_SLOW = 0.05  # share of requests above the 95th percentile


def overhead(bundle: Path, plan: Plan) -> dict[str, Any]:
    """Documents per second over HTTP against the bare engine on the same cores and texts.

    The bare engine runs before and after the service in each round, so that a machine whose speed
    drifts does not favour either.
    """
    count = plan.overhead_documents
    cases: dict[str, list[int]] = {
        "512": [512] * (count // 2),
        "4096": [4096] * (count // 10),
        "mixed": log_normal_lengths(count, seed=1),
    }
    engine = BareEngine(bundle)
    found: dict[str, Any] = {}
    with run_server(OURS, bundle) as server:
        for name, lengths in cases.items():
            documents = make_documents(_tokenizer(bundle), lengths, seed=2)
            _warm_up(server, documents)
            schedules = (ALONE, TOGETHER) if min(lengths) <= GROUP_BELOW else (ALONE,)
            rounds: list[dict[str, Any]] = []
            bare = {s: functools.partial(engine.rate, documents, s) for s in schedules}
            before = {s: undisturbed(bare[s]) for s in schedules}
            for number in range(plan.overhead_rounds):
                through_http = undisturbed(functools.partial(_served, server, documents))
                after = {s: undisturbed(bare[s]) for s in schedules}
                row = {s: (before[s].value + after[s].value) / 2 for s in schedules}
                row |= through_http.value
                row |= _disturbance(through_http, *after.values())
                rounds.append(row)
                _tell(f"{name} tokens, round {number + 1}", row)
                before = after
            medians = {s: _median([row[s] for row in rounds]) for s in schedules}
            best = max(medians, key=lambda s: medians[s])
            ratios = [row["served"] / row[best] for row in rounds]
            found[name] = {
                "rounds": rounds,
                "best_schedule": best,
                "bare": medians[best],
                "served": _median([row["served"] for row in rounds]),
                "ratios": ratios,
                "ratio": _median(ratios),
            }
    return found


def mixed(bundle: Path, plan: Plan) -> dict[str, Any]:
    """Log-normal lengths, 32 clients, every document once: ours against both baselines."""
    lengths = log_normal_lengths(plan.mixed_documents, seed=1)
    documents = make_documents(_tokenizer(bundle), lengths, seed=2)
    rounds: list[dict[str, Any]] = []
    for number in range(plan.mixed_rounds):
        row: dict[str, Any] = {}
        for kind in (OURS, PLAIN, BATCHING) if number % 2 == 0 else (PLAIN, OURS):
            taken = undisturbed(functools.partial(_saturated, kind, bundle, documents))
            row[kind] = taken.value | _disturbance(taken)
            _tell(f"{kind}, round {number + 1}", row[kind])
        rounds.append(row)
    ratios = {
        "throughput_over_plain": _ratios(rounds, PLAIN, "documents_per_second"),
        "throughput_over_batching": _ratios(rounds, BATCHING, "documents_per_second"),
        "p50_over_plain": _ratios(rounds, PLAIN, "p50"),
        "p50_over_batching": _ratios(rounds, BATCHING, "p50"),
        "p99_over_plain": _ratios(rounds, PLAIN, "p99"),
    }
    return {"rounds": rounds, "ratios": ratios, **_medians(ratios)}


def short_behind_long(bundle: Path, plan: Plan) -> dict[str, Any]:
    """5% at 16,384 tokens among short ones, 60% of capacity offered, on schedule.

    Capacity is measured anew in each round: a machine that has become slower would be offered
    more than it can do, and not every server stands that.
    """
    lengths = [min(length, SHORT - 1) for length in log_normal_lengths(600, seed=3)]
    lengths[::20] = [LONG] * len(lengths[::20])
    documents = make_documents(_tokenizer(bundle), lengths, seed=4)
    engine = BareEngine(bundle)
    rounds: list[dict[str, Any]] = []
    for number in range(plan.open_rounds):
        rate = 0.6 * undisturbed(functools.partial(engine.rate, documents)).value
        row: dict[str, Any] = {"rate": rate}
        for kind in (OURS, PLAIN) if number % 2 == 0 else (PLAIN, OURS):
            offered = functools.partial(_offered, rate=rate, seconds=plan.open_seconds, seed=number)
            taken = undisturbed(functools.partial(offered, kind, bundle, documents))
            row[kind] = taken.value | _disturbance(taken)
            _tell(f"{kind}, round {number + 1}", row[kind])
        rounds.append(row)
    ratios = {
        f"{name}_over_plain": _ratios(rounds, PLAIN, name)
        for name in ("p99_short", "p99_long", "peak_bytes")
    }
    rate = _median([row["rate"] for row in rounds])
    return {"rate": rate, "rounds": rounds, "ratios": ratios, **_medians(ratios)}


def overload(bundle: Path, plan: Plan) -> dict[str, Any]:
    """Five times capacity, then normal load: goodput, refusals, memory, recovery.

    Of all rounds: the medians of the ratios, and the worst of what must never be exceeded.
    """
    rounds: list[dict[str, Any]] = []
    for number in range(plan.overload_rounds):
        taken = undisturbed(functools.partial(_flooded, bundle, plan), tries=2)
        rounds.append(taken.value | _disturbance(taken))
        _tell(f"round {number + 1}", rounds[-1])
    shares = ("goodput_over_peak", "token_goodput_over_peak")
    ratios = {name: [row[name] for row in rounds] for name in shares}
    statuses = {status for row in rounds for status in row["statuses"]}
    worst = ("refusal_seconds_p50", "peak_bytes", "recovered_after_seconds")
    return {
        "rounds": rounds,
        "ratios": ratios,
        **_medians(ratios),
        "offered_per_second": _median([row["offered_per_second"] for row in rounds]),
        "statuses": {
            status: sum(row["statuses"].get(status, 0) for row in rounds)
            for status in sorted(statuses)
        },
        **{name: max(row[name] for row in rounds) for name in worst},
        "cores": {
            who: _median([row["cores"][who] for row in rounds]) for who in rounds[0]["cores"]
        },
    }


def _flooded(bundle: Path, plan: Plan) -> dict[str, Any]:
    """One flood; the peak is the mean of what the service did just before and just after."""
    documents = make_documents(_tokenizer(bundle), log_normal_lengths(400, seed=5), seed=6)
    with run_server(OURS, bundle) as server:
        _warm_up(server, documents)
        before = run_load(closed_loop(server.port, documents, clients=16))
        offered = 5 * _rate(before)
        normal = run_load(open_loop(server.port, documents, 0.06 * offered, 5.0, seed=1))
        _tell("before", {"peak": _rate(before), "p95": percentile(normal, 95)})
        memory: list[int] = []
        meter = Meter(server)
        flood = run_load(
            open_loop(
                server.port,
                documents,
                offered,
                plan.overload_seconds,
                seed=2,
                tick=_every(0.25, lambda: memory.append(server.resident_bytes())),
            )
        )
        cores = meter.cores()
        after = run_load(open_loop(server.port, documents, 0.06 * offered, 10.0, seed=3))
        again = run_load(closed_loop(server.port, documents, clients=16))
        peak_bytes = server.peak_bytes()
    good = [s for s in flood if s.status == 200 and s.due + s.seconds <= plan.overload_seconds]
    refused = [s.seconds for s in flood if s.status in (429, 503)]
    usual = percentile(normal, 95)
    peak = (_rate(before) + _rate(again)) / 2
    peak_tokens = sum(document.tokens for document in documents) / len(documents) * peak
    good_tokens = sum(sample.tokens for sample in good) / plan.overload_seconds
    return {
        "peak_documents_per_second": peak,
        "peaks": [_rate(before), _rate(again)],
        "offered_per_second": offered,
        "goodput_over_peak": len(good) / plan.overload_seconds / peak,
        "token_goodput_over_peak": good_tokens / peak_tokens,
        "statuses": _statuses(flood),
        "refusal_seconds_p50": float(np.median(refused)) if refused else 0.0,
        "refusal_seconds_p99": float(np.percentile(refused, 99)) if refused else 0.0,
        "cores": cores,
        "peak_bytes": peak_bytes,
        "resident_bytes": memory,
        "usual_p95": usual,
        "recovered_after_seconds": recovered_after(_short(after), 2 * usual),
        "samples": _raw(flood),
        "samples_after": _raw(after),
    }


def recovered_after(samples: Sequence[Sample], bound: float) -> float:
    """Seconds from which on no more than one request in twenty takes longer than the bound.

    Infinite when that is never so.
    """
    ordered = sorted(samples, key=lambda sample: sample.due)
    slow = np.array([sample.seconds > bound for sample in ordered])
    left = np.arange(len(ordered), 0, -1)
    normal = np.flatnonzero(np.cumsum(slow[::-1])[::-1] / left <= _USUALLY_SLOW)
    if not len(normal):
        return float("inf")
    return 0.0 if normal[0] == 0 else ordered[int(normal[0])].due


def cold_start(bundle: Path, plan: Plan) -> dict[str, Any]:
    """Seconds from process start to the first 200 on /readyz."""
    seconds = []
    for _ in range(plan.starts):
        with run_server(OURS, bundle) as server:
            seconds.append(server.start_seconds)
    return {"seconds": seconds, "median": _median(seconds), "most": max(seconds)}


MEASURES: dict[str, Callable[[Path, Plan], dict[str, Any]]] = {
    "overhead": overhead,
    "mixed": mixed,
    "short_behind_long": short_behind_long,
    "overload": overload,
    "cold_start": cold_start,
}


def _served(server: Running, documents: Sequence[Document]) -> dict[str, Any]:
    """Documents per second over HTTP, and who used the cores."""
    meter = Meter(server)
    samples = run_load(closed_loop(server.port, documents, clients=32))
    _demand_200(samples)
    return {"served": _rate(samples), "cores": meter.cores()}


def _saturated(kind: str, bundle: Path, documents: Sequence[Document]) -> dict[str, Any]:
    """What a server does with 32 clients, every document once."""
    with run_server(kind, bundle) as server:
        _warm_up(server, documents)
        meter = Meter(server)
        samples = run_load(closed_loop(server.port, documents, clients=32))
        return {
            "documents_per_second": _rate(samples),
            "p50": percentile(samples, 50),
            "p99": percentile(samples, 99),
            "p99_short": percentile(_short(samples), 99),
            **_common(server, samples, meter),
        }


def _offered(
    kind: str,
    bundle: Path,
    documents: Sequence[Document],
    *,
    rate: float,
    seconds: float,
    seed: int,
) -> dict[str, Any]:
    """What a server does while so many documents a second arrive on schedule."""
    with run_server(kind, bundle) as server:
        _warm_up(server, documents)
        meter = Meter(server)
        samples = run_load(open_loop(server.port, documents, rate, seconds, seed))
        return {
            "p99_short": percentile(_short(samples), 99),
            "p50_short": percentile(_short(samples), 50),
            "p99_long": percentile([s for s in samples if s.tokens >= SHORT], 99),
            **_common(server, samples, meter),
        }


def _tokenizer(bundle: Path) -> Tokenizer:
    return Tokenizer.from_file(str(bundle / "tokenizer.json"))


def _warm_up(server: Running, documents: Sequence[Document]) -> None:
    run_load(closed_loop(server.port, documents[:40], clients=4))


def _common(server: Running, samples: Sequence[Sample], meter: Meter) -> dict[str, Any]:
    """What is stored of every run."""
    return {
        "peak_bytes": server.peak_bytes(),
        "failed": sum(sample.status != 200 for sample in samples),
        "cores": meter.cores(),
        "samples": _raw(samples),
    }


def _disturbance(*taken: Taken[Any]) -> dict[str, Any]:
    """The most that was stolen during any of them, and how often they were taken in all."""
    return {
        "stolen": max(each.stolen for each in taken),
        "again": sum(each.tries - 1 for each in taken),
    }


def _tell(what: str, figures: dict[str, Any]) -> None:
    """Show how far the measurement has come."""
    shown = [f"{k} {v:.4g}" for k, v in figures.items() if isinstance(v, float)]
    print(f"  {what}: {', '.join(shown)}", file=sys.stderr, flush=True)


def _demand_200(samples: Sequence[Sample]) -> None:
    wrong = {sample.status for sample in samples} - {200}
    if wrong:
        raise RuntimeError(f"answered {wrong} instead of 200")


def _rate(samples: Sequence[Sample]) -> float:
    return len(samples) / span(samples)


def _short(samples: Sequence[Sample]) -> list[Sample]:
    return [sample for sample in samples if sample.tokens < SHORT]


def _raw(samples: Sequence[Sample]) -> list[list[float]]:
    """Tokens, seconds and status of each request."""
    return [[s.tokens, round(s.seconds, 5), s.status] for s in samples]


def _statuses(samples: Sequence[Sample]) -> dict[str, int]:
    found = sorted({sample.status for sample in samples})
    return {str(status): sum(s.status == status for s in samples) for status in found}


def _median(values: Sequence[float]) -> float:
    return float(np.median(values))


def _ratios(rounds: Sequence[dict[str, Any]], other: str, name: str) -> list[float]:
    """Ours over the other's, in each round that has both."""
    return [row[OURS][name] / row[other][name] for row in rounds if other in row]


def _medians(ratios: dict[str, list[float]]) -> dict[str, float]:
    return {name: _median(values) for name, values in ratios.items()}


def _every(seconds: float, call: Callable[[], None]) -> Callable[[], None]:
    last = 0.0

    def tick() -> None:
        nonlocal last
        if time.monotonic() - last >= seconds:
            last = time.monotonic()
            call()

    return tick
