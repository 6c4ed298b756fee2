"""From what became of a load's requests to its record, by the same summary as all load tests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from benchmarks.load.loops import Exchange, span
from benchmarks.load.samples import Sample, Usage
from benchmarks.load.summary import About, summarize
from benchmarks.peers.subject import Subject
from benchmarks.peers.workload import Load, Plan
from benchmarks.records import LoadTest, Requests
from loadtests.generator import Outcome
from loadtests.plan import Plan as LoadPlan

SWEEP = "peers"


def to_record(
    exchanges: Sequence[Exchange],
    load: Load,
    plan: Plan,
    subject: Subject,
    *,
    run: str,
    server: str,
    memory: int | None = None,
    cpu_seconds: float = 0.0,
    note: str = "",
    settings: dict[str, Any],
) -> tuple[LoadTest, Requests]:
    """The record and the raw requests of a load on a server."""
    seconds = load.seconds or span(exchanges)
    outcome = Outcome(
        samples=sorted((each.sample for each in exchanges), key=lambda sample: sample.due),
        metrics_before={},
        metrics_after={},
        memory=[],
        memory_idle=None,
        memory_peak=memory,
        usages=[Usage(cpu_seconds, max(seconds, 1e-9), ())],
        seconds=seconds,
        in_flight=0,
        note=note,
    )
    told = LoadPlan(
        address="",
        service_model=subject.name,
        model=load.model,
        documents=(),
        warm_up=0.0,
        rate=load.rate or 0.0,
        users=plan.clients,
    )
    about = About(
        run=run,
        sweep=SWEEP,
        scenario=load.name,
        length=512 if load.name == "fixed" else None,
        info=subject.info,
        settings=settings | {"plan": plan.values()},
    )
    record, raw = summarize(told, outcome, about)
    return record.model_copy(update={"server": server}), raw


def to_samples(raw: Requests) -> list[Sample]:
    """The samples that raw requests tell of."""
    columns = zip(raw.due, raw.seconds, raw.late, raw.tokens, raw.status, raw.error, strict=True)
    return [
        Sample(due, seconds, late, tokens, 1, status, "interactive", error)
        for due, seconds, late, tokens, status, error in columns
    ]


def percentile_of_all(samples: Sequence[Sample], share: float) -> float:
    """A percentile of the seconds of all requests.

    One without an answer counts as one that took forever: a server that drops what it cannot do
    must not look fast. So the percentile is infinite when it falls among those.
    """
    ordered = sorted(math.inf if each.error else each.seconds for each in samples)
    if not ordered:
        return math.nan
    return ordered[max(0, math.ceil(share / 100 * len(ordered)) - 1)]
