"""Charts of load tests and of a live service. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import altair as alt

from benchmarks.records import LoadTest
from dashboard.chart_parts import Figure, Row, data, finish, log_axis
from dashboard.looks import Look, channels

PERCENTILES = {
    "p50": Look("#56b4e9", shape="circle"),
    "p90": Look("#009e73", (8, 3), "square"),
    "p95": Look("#e69f00", (5, 2, 1, 2), "triangle-up"),
    "p99": Look("#d55e00", (2, 3), "diamond"),
}
_COMPARED = (Look("#0077bb", shape="circle"), Look("#d55e00", (8, 3), "diamond"))


def service_of(test: LoadTest) -> str:
    precision = "" if test.precision in (None, "fp32") else str(test.precision)
    parts = [test.server, test.attention or "", test.engine or "", precision]
    return " · ".join(part for part in parts if part)


def name_of(test: LoadTest) -> str:
    """What was tested, in a few words."""
    return " · ".join(part for part in (service_of(test), test.scenario) if part)


def load_of(test: LoadTest) -> str:
    if test.model == "open" and test.offered_per_second is not None:
        return f"{test.offered_per_second:.4g}/s"
    return f"{test.users or 0} user" + "s" * (test.users != 1)


def test_rows(tests: Iterable[LoadTest]) -> list[Row]:
    """One row per load test, newest first."""
    rows = [
        {
            "when": test.created[:16].replace("T", " "),
            "service": service_of(test),
            "documents": test.scenario,
            "load": load_of(test),
            **{name: to_ms(getattr(test, name)) for name in PERCENTILES},
            "errors": sum(test.errors.values()),
            "documents/s": test.documents_per_second,
            "memory MB": None if test.service_memory_bytes is None
            else test.service_memory_bytes / 1e6,
            "requests": test.requests,
            "answered/s": test.answered_per_second,
            "note": _note(test),
        }
        for test in tests
    ]  # fmt: skip
    return sorted(rows, key=lambda row: str(row["when"]), reverse=True)


def against_load(tests: Sequence[LoadTest]) -> Figure:
    """Latency percentiles against offered load, of the tests of one sweep.

    A rate that was tried again is drawn as it was the last time.
    """
    last = {test.offered_per_second or test.answered_per_second: test for test in tests}
    rows = [
        {
            "rate": rate,
            "ms": to_ms(getattr(test, name)),
            "which": name,
            "load": load_of(test),
        }
        for rate, test in last.items()
        for name in PERCENTILES
        if getattr(test, name)
    ]
    x = alt.X("rate:Q", title="offered per second", axis=alt.Axis(grid=False, tickCount=8))
    chart = _lines(rows, x, "milliseconds", "which", PERCENTILES, ["load:N"])
    return Figure(chart, test_rows(tests), PERCENTILES)


def by_length(tests: Sequence[tuple[str, LoadTest]], metric: str = "p99") -> Figure:
    """A percentile by document length, of one or two tests."""
    buckets = [(name, bucket) for name, test in tests for bucket in test.by_length]
    rows: list[Row] = [
        {
            "bucket": f"{b.low:,} to {b.high - 1:,}",
            "low": b.low,
            "test": name,
            "ms": to_ms(getattr(b, metric)),
            "requests": b.requests,
            "errors": b.errors,
        }
        for name, b in buckets
        if getattr(b, metric)
    ]
    order = list(dict.fromkeys(r["bucket"] for r in sorted(rows, key=lambda row: row["low"])))
    x = alt.X("bucket:O", sort=order, title="tokens", axis=alt.Axis(labelAngle=-30))
    looks = compared(tests)
    tooltip = ["bucket:O", "requests:Q", "errors:Q"]
    chart = _lines(rows, x, f"{metric} in milliseconds", "test", looks, tooltip)
    return Figure(chart, [{"test": name, **b.model_dump()} for name, b in buckets], looks)


def over_time(tests: Sequence[tuple[str, LoadTest]]) -> Figure:
    """The p99 of each second, of one or two tests."""
    seconds = [(name, second) for name, test in tests for second in test.by_second]
    rows = [
        {"at": s.at, "ms": to_ms(s.p99), "test": name, "answered": s.answered, "errors": s.errors}
        for name, s in seconds
        if s.p99
    ]
    x = alt.X("at:Q", title="seconds", axis=alt.Axis(grid=False, tickMinStep=1))
    looks = compared(tests)
    tooltip = ["at:Q", "answered:Q", "errors:Q"]
    chart = _lines(rows, x, "p99 in milliseconds", "test", looks, tooltip)
    return Figure(chart, [{"test": name, **s.model_dump()} for name, s in seconds], looks)


def compared(tests: Sequence[tuple[str, LoadTest]]) -> dict[str, Look]:
    """The looks of two tests that are compared, by name."""
    return {name: _COMPARED[index % 2] for index, (name, _) in enumerate(tests)}


def _lines(
    rows: Sequence[Row],
    x: alt.X,
    name: str,
    field: str,
    looks: Mapping[str, Look],
    tooltip: Sequence[str],
) -> alt.LayerChart:
    how = channels(f"{field}:N", looks)
    base = alt.Chart(data(rows)).encode(
        x=x, y=log_axis("ms:Q", name, [row["ms"] for row in rows]), color=how["color"]
    )
    lines = base.mark_line(strokeWidth=2).encode(strokeDash=how["strokeDash"])
    tips = [f"{field}:N", *tooltip, alt.Tooltip("ms:Q", format=",.1f")]
    points = base.mark_point(size=60, filled=True).encode(shape=how["shape"], tooltip=tips)
    return finish([lines, points])


def error_rows(tests: Iterable[tuple[str, LoadTest]]) -> list[Row]:
    return [
        {"test": name, "error": kind, "count": count, "share": count / max(1, test.requests)}
        for name, test in tests
        for kind, count in sorted(test.errors.items())
    ]


def kind_rows(tests: Iterable[tuple[str, LoadTest]]) -> list[Row]:
    """Figures by kind of caller, where there is more than one."""
    return [
        {
            "test": name,
            "caller": kind.request,
            "requests": kind.requests,
            "documents": kind.documents,
            "errors": kind.errors,
            **{f"{share} ms": to_ms(getattr(kind, share)) for share in ("p50", "p95", "p99")},
        }
        for name, test in tests
        if len(test.by_request) > 1
        for kind in test.by_request
    ]


def live_chart(history: Sequence[Row], fields: Mapping[str, str], title: str) -> Figure:
    """Lines over the last minutes; fields are names by column."""
    rows = [
        {"at": point["at"], "value": point[field], "which": name}
        for point in history
        for field, name in fields.items()
        if point.get(field) is not None
    ]
    looks = dict(zip(fields.values(), PERCENTILES.values(), strict=False))
    how = channels("which:N", looks)
    base = alt.Chart(data(rows)).encode(
        x=alt.X("at:Q", title="seconds", scale=alt.Scale(nice=False), axis=alt.Axis(grid=False)),
        y=alt.Y(
            "value:Q",
            title=None,
            scale=alt.Scale(domain=[0, max([1.0, *(row["value"] for row in rows)])]),
            axis=alt.Axis(format="~s", tickCount=4),
        ),
        color=how["color"],
        strokeDash=how["strokeDash"],
        tooltip=["which:N", alt.Tooltip("value:Q", format=",.2f")],
    )
    return Figure(
        finish([base.mark_line(strokeWidth=2)], title).properties(height=200), rows, looks
    )


def _note(test: LoadTest) -> str:
    said = "bottleneck" in test.note or "sockets" in test.note
    if test.generator_bottleneck and not said:
        return "; ".join(filter(None, ["the load generator was the bottleneck", test.note]))
    return test.note


def to_ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3
