"""From raw samples to a record: percentiles, seconds, lengths, kinds, errors. Pure functions."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from benchmarks.environment import now
from benchmarks.load.bottleneck import describe_generator, find_bottleneck
from benchmarks.load.samples import Sample, Usage, to_requests
from benchmarks.records import (
    Bundled,
    LengthBucket,
    LoadTest,
    RequestKind,
    Requests,
    Second,
    percentile,
)

#: The service's own count of the requests that it refused.
REFUSED = "longdoc_rejected_requests_total"

_FIRST_BUCKET = 64
_FEW = 10  # answers


@dataclass(frozen=True)
class Outcome:
    """A finished load: what was asked for and everything that was observed."""

    samples: Sequence[Sample]
    seconds: float
    model: Literal["open", "closed"]
    rate: float | None = None
    users: int | None = None
    warm_up: float = 0.0
    metrics_before: dict[str, float] = field(default_factory=dict)
    metrics_after: dict[str, float] = field(default_factory=dict)
    memory: Sequence[tuple[float, int]] = ()
    memory_idle: int | None = None
    memory_peak: int | None = None
    memory_after: int | None = None
    usages: Sequence[Usage] = ()
    in_flight: int = 0
    note: str = ""

    @property
    def interrupted(self) -> bool:
        """Whether somebody ended it before its time."""
        return self.note == "interrupted"


@dataclass(frozen=True)
class About:
    """What a record says besides the figures; `info` is what the service says of itself."""

    run: str
    scenario: str
    info: Mapping[str, Any]
    settings: dict[str, Any]
    sweep: str = ""
    length: int | None = None
    server: str = "longdoc"


def summarize(outcome: Outcome, about: About) -> tuple[LoadTest, Requests]:
    """The record of a load, and its raw requests, warm-up included."""
    measured = [s for s in outcome.samples if s.due >= 0]
    warm_up = [s for s in outcome.samples if s.due < 0]
    answered, documents = throughput(outcome)
    p50, p90, p95, p99 = (_percentile(measured, share) for share in (50, 90, 95, 99))
    is_open = outcome.model == "open"
    generator = describe_generator(measured, outcome.usages, open_model=is_open)
    bottleneck = find_bottleneck(generator, measured, p50, p99)
    refused, counted = refusals(outcome)
    notes = [outcome.note, bottleneck, *_remarks(outcome, refused, counted)]
    test = LoadTest(
        run=about.run,
        created=now(),
        server=about.server,
        sweep=about.sweep,
        scenario=about.scenario,
        **_served(about.info),
        model=outcome.model,
        offered_per_second=outcome.rate if is_open else None,
        users=None if is_open else outcome.users,
        seconds=outcome.seconds,
        warm_up_seconds=outcome.warm_up,
        requests=len(measured),
        documents=sum(s.documents for s in measured),
        tokens=sum(s.tokens for s in measured),
        p50=p50,
        p90=p90,
        p95=p95,
        p99=p99,
        answered_per_second=answered,
        documents_per_second=documents,
        errors=dict(Counter(s.error for s in measured if s.error)),
        by_length=by_length(measured),
        by_second=by_second(measured, outcome),
        by_request=by_request(measured),
        service_memory_bytes=outcome.memory_peak,
        service_idle_bytes=outcome.memory_idle,
        service_after_bytes=outcome.memory_after,
        metrics_before=outcome.metrics_before,
        metrics_after=outcome.metrics_after,
        warm_up_requests=len(warm_up),
        warm_up_errors=dict(Counter(s.error for s in warm_up if s.error)),
        generator=generator,
        generator_bottleneck=bool(bottleneck),
        note="; ".join(note for note in notes if note),
        settings=about.settings | {"refused": {"here": refused, "service": counted}},
        length=about.length,
    )
    return test, to_requests(outcome.samples)


def refusals(outcome: Outcome) -> tuple[int, int | None]:
    """Requests refused as counted here, warm-up included, and by the service's own metric."""
    here = sum(s.refused and s.kind != "bulk" for s in outcome.samples)
    before, after = outcome.metrics_before.get(REFUSED), outcome.metrics_after.get(REFUSED)
    return here, None if before is None or after is None else round(after - before)


def throughput(outcome: Outcome) -> tuple[float, float]:
    """Requests and documents answered in a second, of those answered in the measured time.

    When that is very little, the time goes on to the last answer.
    """
    ends = [(s.due + s.seconds, s.documents) for s in outcome.samples if not s.error]
    seconds = outcome.seconds
    if sum(0 <= end < seconds for end, _ in ends) < _FEW:
        seconds = max([seconds, *(end for end, _ in ends)])
    inside = [documents for end, documents in ends if 0 <= end <= seconds]
    seconds = max(seconds, 1e-9)
    return len(inside) / seconds, sum(inside) / seconds


def by_length(samples: Iterable[Sample]) -> tuple[LengthBucket, ...]:
    """Percentiles by the tokens of a request, in ranges that double."""
    groups = _grouped(samples, lambda sample: bucket_end(sample.tokens))
    return tuple(
        LengthBucket(
            low=0 if end == _FIRST_BUCKET else end // 2 + 1, high=end + 1, **_figures(group)
        )
        for end, group in groups.items()
    )


def by_second(samples: Sequence[Sample], outcome: Outcome) -> tuple[Second, ...]:
    """What was sent, answered and lost in each second; a latency belongs to when it was due."""
    sent = _grouped(samples, lambda sample: int(sample.due))
    ended = _grouped(samples, lambda sample: int(sample.due + sample.seconds))
    held = {math.floor(at): memory for at, memory in outcome.memory}
    return tuple(
        Second(
            at=at,
            sent=len(sent.get(at, ())),
            answered=sum(not s.error for s in ended.get(at, ())),
            errors=sum(bool(s.error) for s in ended.get(at, ())),
            p50=_percentile(sent.get(at, ()), 50),
            p99=_percentile(sent.get(at, ()), 99),
            memory_bytes=held.get(at),
        )
        for at in range(max([-1, *sent, *ended]) + 1)
    )


def by_request(samples: Iterable[Sample]) -> tuple[RequestKind, ...]:
    """Percentiles by kind of caller."""
    groups = _grouped(samples, lambda sample: sample.kind)
    return tuple(
        RequestKind(request=kind, documents=sum(s.documents for s in group), **_figures(group))
        for kind, group in groups.items()
    )


def bucket_end(tokens: int) -> int:
    """The largest length of the range that holds `tokens`: 64, 128, 256 and so on."""
    return max(_FIRST_BUCKET, 1 << max(0, tokens - 1).bit_length())


def _grouped(samples: Iterable[Sample], key: Callable[[Sample], Any]) -> dict[Any, list[Sample]]:
    groups: dict[Any, list[Sample]] = defaultdict(list)
    for sample in samples:
        groups[key(sample)].append(sample)
    return dict(sorted(groups.items()))


def _remarks(outcome: Outcome, refused: int, counted: int | None) -> Iterable[str]:
    if outcome.metrics_before and not outcome.metrics_after:
        yield "the service did not answer any more when the load was over"
    if counted is not None and counted != refused:
        yield f"the service counted {counted} refusals, {refused} came here: others use it, too"
    if outcome.in_flight:
        yield f"{outcome.in_flight} requests were still under way when it ended"


def _served(info: Mapping[str, Any]) -> dict[str, Any]:
    engine = info["engine"]
    return {
        "attention": info["attention"]["name"],
        "engine": f"{engine['name']}:{engine['device']}",
        "precision": engine["precision"],
        "bundle": Bundled(
            name=info["model"],
            digest=info["bundle_digest"],
            weights="trained" if info.get("accuracy") else "random",
        ),
    }


def _percentile(samples: Iterable[Sample], share: float) -> float | None:
    times = [s.seconds for s in samples if s.counts]
    return percentile(times, share) if times else None


def _figures(samples: Sequence[Sample]) -> dict[str, Any]:
    """Counts and percentiles that lengths and kinds of callers have in common."""
    return {
        "requests": len(samples),
        "errors": sum(bool(s.error) for s in samples),
        **{f"p{share}": _percentile(samples, share) for share in (50, 95, 99)},
    }
