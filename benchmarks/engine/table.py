"""Measurements as a table for the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.records import Measurement

_COLUMNS = (
    *("ATTENTION", "ENGINE", "PRECISION", "LENGTH", "BATCH"),
    *("MEDIAN", "P95", "TOKENS/S", "PEAK MEMORY"),
)


def summary_table(records: Iterable[Measurement]) -> str:
    """One line per configuration: median, spread, throughput, memory, or why there is none."""
    rows: list[tuple[str, ...]] = [_COLUMNS]
    rows += [_row(record) for record in records]
    widths = [max(map(len, column)) for column in zip(*(row[:8] for row in rows), strict=True)]
    return "\n".join(
        "  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[8]]).rstrip()
        for row in rows
    )


def _row(record: Measurement) -> tuple[str, ...]:
    about = (record.attention, record.engine, record.precision)
    place = (*about, f"{record.length:,}", str(record.batch))
    if record.status != "measured":
        return (*place, record.status, "", "", record.reason)
    peak = "-" if record.peak_bytes is None else f"{record.peak_bytes / 1e6:,.1f} MB"
    return (
        *place,
        f"{record.median * 1e3:,.2f} ms",
        f"{record.p95 * 1e3:,.2f} ms",
        f"{record.tokens_per_second:,.0f}",
        peak,
    )
