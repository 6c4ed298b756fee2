"""Figures drawn from measurements: rows for charts, crossover lengths, gains. Pure functions."""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.engine.papers import LINFORMER_GAINS
from benchmarks.records import UNFUSED, Measurement, percentile
from dashboard.series import in_order, title

Row = dict[str, Any]
#: One line of a chart: attention, engine, precision, batch.
Line = tuple[str, str, str, int]

ENGINE_TITLES = {"onnxruntime": "ONNX Runtime", "torch": "PyTorch"}


def lines(measurements: Iterable[Measurement]) -> dict[Line, dict[int, Measurement]]:
    """What was measured, by line and length; of repeated measurements the last counts."""
    found: dict[Line, dict[int, Measurement]] = defaultdict(dict)
    for record in measurements:
        if record.status == "measured" and record.samples_seconds:
            key = (record.attention, record.engine, record.precision, record.batch)
            found[key][record.length] = record
    return found


def cost_rows(measurements: Iterable[Measurement]) -> list[Row]:
    """One row per configuration: median with the spread of its runs, throughput, memory."""
    rows = []
    for (attention, engine, precision, batch), by_length in lines(measurements).items():
        for length, record in sorted(by_length.items()):
            samples = record.samples_seconds
            rows.append(
                {
                    "attention": attention,
                    "title": title(attention),
                    "engine": engine,
                    "precision": precision,
                    "batch": batch,
                    "length": length,
                    "latency": record.median * 1e3,
                    "latency_low": percentile(samples, 10) * 1e3,
                    "latency_high": percentile(samples, 90) * 1e3,
                    "p95": record.p95 * 1e3,
                    "throughput": record.tokens_per_second,
                    "throughput_low": length * batch / percentile(samples, 90),
                    "throughput_high": length * batch / percentile(samples, 10),
                    "memory": None if record.peak_bytes is None else record.peak_bytes / 1e6,
                    "runs": len(samples),
                }
            )
    return rows


def crossovers(measurements: Iterable[Measurement]) -> list[Row]:
    """From which length each attention beats fused softmax, by engine, precision and batch.

    `length` is the shortest measured length from which it is faster at all longer ones too;
    `at` and `latency` are where the two lines cross, read off between the measured lengths.
    """
    by_line = lines(measurements)
    rows = []
    for (attention, engine, precision, batch), own in by_line.items():
        softmax = by_line.get(("softmax", engine, precision, batch))
        if attention in ("softmax", UNFUSED) or not softmax:
            continue
        common = sorted(set(own) & set(softmax))
        if not common:
            continue
        ratios = {n: softmax[n].median / own[n].median for n in common}
        first = next((n for i, n in enumerate(common) if all(ratios[m] > 1 for m in common[i:])), 0)
        row = {
            "attention": attention,
            "title": title(attention),
            "engine": engine,
            "precision": precision,
            "batch": batch,
            "length": first or None,
            "at": None,
            "latency": None,
            "longest": common[-1],
            "gain": ratios[common[-1]],
            "words": _say_crossover(first, common),
        }
        before = max((n for n in common if n < first), default=0)
        if first and before:
            row["at"], row["latency"] = _crossing(before, first, ratios, own)
        rows.append(row)
    order = in_order({str(row["attention"]) for row in rows})
    return sorted(rows, key=lambda row: (row["engine"], row["precision"],
                                         order.index(str(row["attention"]))))  # fmt: skip


def _say_crossover(first: int, common: Sequence[int]) -> str:
    if not first:
        return f"not up to {common[-1]:,}"
    return f"at all lengths from {first:,}" if first == common[0] else f"from {first:,}"


def _crossing(
    before: int, first: int, ratios: Mapping[int, float], own: Mapping[int, Measurement]
) -> tuple[float, float]:
    """Where the ratio is one on the straight line between two points of a log-log plot."""
    low, high = math.log(ratios[before]), math.log(ratios[first])
    share = -low / (high - low) if high != low else 1.0
    at = before * (first / before) ** share
    latency = own[before].median * (own[first].median / own[before].median) ** share
    return at, latency * 1e3


def paper_gains(measurements: Iterable[Measurement], engine: str, precision: str) -> list[Row]:
    """Linformer's gain over softmax in time and memory: the paper's, ours, and over fused."""
    by_line = lines(measurements)
    naive = by_line.get((UNFUSED, engine, precision, 1), {})
    fused = by_line.get(("softmax", engine, precision, 1), {})
    ours = by_line.get(("linformer", engine, precision, 1), {})
    rows = []
    for length, (time, memory) in LINFORMER_GAINS.items():
        linformer = ours.get(length)
        rows.append(
            {
                "length": length,
                "paper_time": time,
                "our_time": _ratio(naive.get(length), linformer, "median"),
                "fused_time": _ratio(fused.get(length), linformer, "median"),
                "paper_memory": memory,
                "our_memory": _ratio(naive.get(length), linformer, "peak_bytes"),
                "fused_memory": _ratio(fused.get(length), linformer, "peak_bytes"),
            }
        )
    return rows


def _ratio(other: Measurement | None, own: Measurement | None, field: str) -> float | None:
    if other is None or own is None:
        return None
    top, bottom = getattr(other, field), getattr(own, field)
    return top / bottom if top is not None and bottom else None


def interpolate(points: Mapping[int, float], length: float) -> float | None:
    """The value at a length on the line through the points of a log-log plot.

    Beyond the ends the nearest piece goes on; a single point grows in proportion.
    """
    known = sorted(n for n, value in points.items() if value > 0)
    if not known:
        return None
    if len(known) == 1:
        return points[known[0]] * length / known[0]
    place = min(max(bisect.bisect_left(known, length), 1), len(known) - 1)
    low, high = known[place - 1], known[place]
    power = math.log(points[high] / points[low]) / math.log(high / low)
    if length < known[0]:
        power = max(power, 0.0)
    return points[low] * math.pow(length / low, power)


def latencies_of(measurements: Iterable[Measurement]) -> dict[str, dict[int, float]]:
    """Milliseconds by attention and length: single documents, ONNX Runtime, fp32."""
    return {
        attention: {n: record.median * 1e3 for n, record in by_length.items()}
        for (attention, engine, precision, batch), by_length in lines(measurements).items()
        if (engine, precision, batch) == ("onnxruntime", "fp32", 1)
    }


def left_out(measurements: Iterable[Measurement]) -> list[Row]:
    """What was skipped or failed, and why."""
    return [
        {
            "attention": title(record.attention),
            "engine": ENGINE_TITLES.get(record.engine, record.engine),
            "precision": record.precision,
            "length": record.length,
            "batch": record.batch,
            "status": record.status,
            "reason": record.reason,
        }
        for record in measurements
        if record.status != "measured"
    ]
