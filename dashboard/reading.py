"""Reading whole or in windows, and what a service needs: predictions, held against load tests.

Pure functions. A window is cut as the service cuts it: of about equal length, with an overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from benchmarks.records import LoadTest, Measurement
from dashboard.costs import Row, interpolate, lines
from dashboard.series import title
from models.windows import OVERLAP, count_windows


def windows(length: int, limit: int) -> tuple[int, int]:
    """How many pieces a document is read in, and the tokens of one."""
    if length <= limit:
        return 1, length
    return count_windows(length, limit, min(OVERLAP, limit // 2))


def describe_reading(length: int, limit: int) -> str:
    """`whole`, or how many windows of how many tokens."""
    count, size = windows(length, limit)
    return "whole" if count == 1 else f"{count} windows of {size:,} tokens"


def document_cost(points: Mapping[int, float], length: int, limit: int) -> float:
    """The sum over a document's windows of what is known by length; 0 when nothing is known."""
    count, size = windows(length, limit)
    return count * (interpolate(points, size) or 0.0)


def in_windows(rows: Sequence[Row], limits: Mapping[str, int]) -> list[Row]:
    """Rows of cost by length as each bundle reads: beyond its limit in windows, one by one."""
    by_line: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        key = (row["attention"], row["engine"], row["precision"], str(row["batch"]))
        by_line.setdefault(key, []).append(row)
    found = []
    for (attention, *_), own in by_line.items():
        limit = limits.get(attention, max(row["length"] for row in own))
        for row in own:
            count, size = windows(row["length"], limit)
            if count == 1:
                found.append(row)
                continue
            changed = dict(row) | {"title": f"{title(attention)}, windows of {limit:,}"}
            for name in ("latency", "latency_low", "latency_high", "p95"):
                changed[name] = count * (_at(own, name, size) or 0.0)
            changed["memory"] = _at(own, "memory", size)
            tokens = row["length"] * row["batch"] * 1e3
            changed["throughput"] = tokens / changed["latency"]
            changed["throughput_low"] = tokens / changed["latency_high"]
            changed["throughput_high"] = tokens / changed["latency_low"]
            found.append(changed)
        if any(row["length"] > limit for row in own):
            name = f"{title(attention)}, windows of {limit:,}"
            found = [r | {"title": name} if r["attention"] == attention else r for r in found]
    return found


def _at(rows: Sequence[Row], name: str, length: int) -> float | None:
    return interpolate({row["length"]: row[name] for row in rows if row[name]}, length)


def engine_memory(by_length: Mapping[int, Measurement], tokens: int, workers: int) -> float:
    """Bytes of the networks' process with a document of so many tokens on each worker."""
    peaks = {n: float(r.peak_bytes) for n, r in by_length.items() if r.peak_bytes}
    base = max((r.baseline_bytes or 0 for r in by_length.values()), default=0)
    return base + workers * (interpolate(peaks, tokens) or 0.0)


def held_against_load_tests(
    tests: Iterable[LoadTest], measurements: Iterable[Measurement], limits: Mapping[str, int]
) -> list[Row]:
    """What the engine's measurements predict of each load test of one length, and what it found.

    `limits` are the most tokens that each bundle reads at once, by the bundle's name.
    """
    by_line = lines(measurements)
    rows = []
    for test in tests:
        points = by_line.get((test.attention or "", "onnxruntime", test.precision or "fp32", 1))
        if test.server != "longdoc" or not test.length or not points or test.model != "closed":
            continue
        limit = limits.get(test.bundle.name if test.bundle else "", max(points))
        _, size = windows(test.length, limit)
        rows.append(
            {
                "attention": title(test.attention or ""),
                "tokens": test.length,
                "read": describe_reading(test.length, limit),
                "predicted ms": 1e3
                * document_cost({n: r.median for n, r in points.items()}, test.length, limit),
                "measured ms": None if test.p50 is None else test.p50 * 1e3,
                "networks MB": engine_memory(points, size, test.users or 1) / 1e6,
                "measured MB": None
                if test.service_memory_bytes is None
                else test.service_memory_bytes / 1e6,
            }
        )
    return rows


def service_memory(checks: Sequence[Row]) -> float:
    """Bytes a service takes on top of its networks: the median over load tests; 0 without any."""
    own = [row["measured MB"] - row["networks MB"] for row in checks if row["measured MB"]]
    return max(0.0, median(own)) * 1e6 if own else 0.0


def typical_error(checks: Sequence[Row], predicted: str, measured: str) -> float | None:
    """The median of how far predictions are off, as a share of what was measured."""
    errors = [abs(r[predicted] - r[measured]) / r[measured] for r in checks if r[measured]]
    return median(errors) if errors else None
