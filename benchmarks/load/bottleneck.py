"""Whether the load generator itself was the limit, so that nobody blames the service for it."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.load.samples import NO_SOCKETS, Sample, Usage
from benchmarks.records import Generator, percentile

_BUSY = 0.85  # of a core: one process cannot do more than 1
_SHARE = 0.1  # of a latency may be the generator's own
_MEAN_SECONDS, _P99_SECONDS = 0.002, 0.010  # below this nobody is late


def describe_generator(
    samples: Sequence[Sample], usages: Sequence[Usage], *, open_model: bool
) -> Generator:
    """What the generator needed: its processor time, and how late it was."""
    late = [s.late for s in samples] if open_model else [v for u in usages for v in u.overslept]
    return Generator(
        processes=max(1, len(usages)),
        cpu_share=max((u.cpu_seconds / u.seconds for u in usages), default=0.0),
        late_mean=sum(late) / len(late) if late else 0.0,
        late_p99=percentile(late, 99) if late else 0.0,
        late_most=max(late, default=0.0),
    )


def find_bottleneck(
    generator: Generator, samples: Sequence[Sample], p50: float | None, p99: float | None
) -> str:
    """Why the figures are the generator's rather than the service's, or nothing."""
    if any(sample.error == NO_SOCKETS for sample in samples):
        return "the load generator ran out of sockets: raise the limit of open files"
    if generator.cpu_share > _BUSY:
        return (
            f"the load generator was the bottleneck: it kept a core {generator.cpu_share:.0%} "
            "busy; divide the load with --workers"
        )
    mean_limit = max(_MEAN_SECONDS, _SHARE * (p50 or 0.0))
    p99_limit = max(_P99_SECONDS, _SHARE * (p99 or 0.0))
    if generator.late_mean > mean_limit or generator.late_p99 > p99_limit:
        mean, most = generator.late_mean * 1e3, generator.late_p99 * 1e3
        return (
            f"the load generator was the bottleneck: requests left {mean:.1f} ms late on average, "
            f"{most:.0f} ms at the 99th percentile; give it a machine or cores of its own"
        )
    return ""
