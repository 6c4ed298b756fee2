"""Ranks attentions and engines for given document lengths and limits. Pure functions."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from benchmarks.records import UNFUSED, Measurement, percentile
from dashboard.accuracy import Classifier
from dashboard.costs import ENGINE_TITLES, Line, lines
from dashboard.reading import describe_reading, document_cost, engine_memory, windows
from dashboard.series import title

#: Tokens per word of English text, about, for those who have texts and no counts.
TOKENS_PER_WORD = 1.4
MOST_LENGTHS = 100_000


@dataclass(frozen=True)
class Wanted:
    """What the user asks for; None where anything will do."""

    lengths: Sequence[int]
    latency_ms: float | None
    memory_mb: float | None
    cores: int


@dataclass(frozen=True)
class Candidate:
    """One attention on one engine, as it would do on the user's documents."""

    attention: str
    engine: str
    precision: str
    reading: str
    p95_ms: float
    memory_mb: float
    per_core: float
    documents_per_second: float
    accuracy: float | None
    bundle: str | None
    misses: str
    beyond: bool

    @property
    def fits(self) -> bool:
        """Whether it keeps all limits."""
        return not self.misses

    @property
    def title(self) -> str:
        engine = ENGINE_TITLES.get(self.engine, self.engine)
        return f"{title(self.attention)} on {engine}, {self.precision}"

    def command(self) -> str:
        """What deploys it."""
        bundle = self.bundle or f"elife-{self.attention.replace('_', '-')}"
        return (
            f"longdoc serve --bundle {bundle} --engine {self.engine} --precision {self.precision}"
        )


def parse_lengths(text: str) -> list[int]:
    """Token counts from numbers, or from texts: one document per line, counted by its words."""
    stripped = text.strip()
    if not stripped:
        return []
    parts = re.split(r"[\s,;]+", stripped)
    if all(re.fullmatch(r"\d{1,9}(\.0*)?", part) for part in parts):
        counts = [int(float(part)) for part in parts]
    else:
        lines_of_text = [line for line in stripped.splitlines() if line.strip()]
        counts = [math.ceil(len(line.split()) * TOKENS_PER_WORD) for line in lines_of_text]
    return [n for n in counts if n > 0][:MOST_LENGTHS]


def lengths_of_files(files: Iterable[tuple[str, str]]) -> list[int]:
    """Lengths from files by name and content: a text is one document, whatever its lines.

    Files of numbers hold token counts; those that end in .csv, .tsv or .jsonl a document per line.
    """
    lengths: list[int] = []
    for name, text in files:
        in_lines = name.lower().endswith((".csv", ".tsv", ".jsonl", ".ndjson"))
        numbers = not re.search(r"[^\d\s,;.]", text)
        lengths += parse_lengths(text if in_lines or numbers else " ".join(text.split()))
    return lengths[:MOST_LENGTHS]


def from_percentiles(p50: int, p95: int, longest: int) -> list[int]:
    """A hundred lengths with these percentiles, evenly spread in proportion between them."""
    points = [
        (0.0, max(1.0, p50 / 4)),
        (50.0, p50),
        (95.0, max(p50, p95)),
        (99.0, max(p95, longest)),
    ]
    lengths = []
    for rank in range(100):
        (a, low), (b, high) = next((one, two) for one, two in pairwise(points) if rank <= two[0])
        lengths.append(round(low * (high / low) ** ((rank - a) / (b - a))))
    return lengths


def rank(
    measurements: Iterable[Measurement],
    wanted: Wanted,
    classifiers: Mapping[str, Classifier],
    service_bytes: float = 0.0,
) -> list[Candidate]:
    """All candidates: those that fit first, then the most accurate, then the fastest.

    `service_bytes` is what a service takes on top of its networks.
    """
    candidates = []
    for line, by_length in lines(measurements).items():
        attention, _, _, batch = line
        if batch != 1 or attention == UNFUSED or not wanted.lengths:
            continue
        classifier = classifiers.get(attention)
        candidates.append(_judge(line, by_length, wanted, classifier, service_bytes))
    return sorted(
        candidates,
        key=lambda c: (not c.fits, -round(c.accuracy or 0, 2), -c.documents_per_second),
    )


def _judge(
    line: Line,
    by_length: Mapping[int, Measurement],
    wanted: Wanted,
    classifier: Classifier | None,
    service_bytes: float,
) -> Candidate:
    attention, engine, precision, _ = line
    limit = classifier.max_tokens if classifier else max(wanted.lengths)
    medians = {n: record.median for n, record in by_length.items()}
    high = {n: record.p95 for n, record in by_length.items()}
    mean = sum(document_cost(medians, n, limit) for n in wanted.lengths) / len(wanted.lengths)
    p95 = percentile([document_cost(high, n, limit) for n in wanted.lengths], 95) * 1e3
    _, piece = windows(max(wanted.lengths), limit)
    memory = (service_bytes + engine_memory(by_length, piece, wanted.cores)) / 1e6
    return Candidate(
        attention=attention,
        engine=engine,
        precision=precision,
        reading=describe_reading(max(wanted.lengths), limit),
        p95_ms=p95,
        memory_mb=memory,
        per_core=1 / mean,
        documents_per_second=wanted.cores / mean,
        accuracy=classifier.accuracy if classifier else None,
        bundle=classifier.name if classifier else None,
        misses=_misses(p95, memory, wanted),
        beyond=piece > max(by_length),
    )


def _misses(p95_ms: float, memory_mb: float, wanted: Wanted) -> str:
    """Which limits are missed, in words; nothing when all are kept."""
    reasons = []
    if wanted.latency_ms is not None and p95_ms > wanted.latency_ms:
        reasons.append(f"{p95_ms / wanted.latency_ms:.1f} times too slow")
    if wanted.memory_mb is not None and memory_mb > wanted.memory_mb:
        reasons.append(f"{memory_mb - wanted.memory_mb:,.0f} MB too much")
    return ", ".join(reasons)


def explain(ranked: Sequence[Candidate], wanted: Wanted) -> str:
    """Why the first was chosen, in a sentence."""
    best = ranked[0]
    fitting = [c for c in ranked if c.fits]
    figures = (
        f"a predicted p95 of {best.p95_ms:,.0f} ms, {best.memory_mb:,.0f} MB and "
        f"{best.documents_per_second:,.1f} documents per second on {wanted.cores} "
        f"core{'s' if wanted.cores > 1 else ''}"
    )
    if not fitting:
        return f"Nothing meets the limits; closest in the ranking is {best.title}, with {figures}."
    reason = (
        "the fastest"
        if best.accuracy is None
        else f"the fastest of the most accurate ({best.accuracy:.1%} on its test documents)"
    )
    among = (
        f"of {len(fitting)} that meet the limits" if len(fitting) > 1 else "the only one that fits"
    )
    return f"{best.title} is {reason}, {among}: {figures}."
