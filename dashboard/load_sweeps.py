"""Load tests that belong together: the same at several rates, or at several lengths."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import altair as alt

from benchmarks.records import LoadTest
from dashboard.chart_parts import Figure, Row, data, finish, length_axis, log_axis
from dashboard.load_charts import load_of, name_of, service_of, to_ms
from dashboard.looks import channels
from dashboard.series import in_order, look, title

#: What can be shown against document length, by name on the page.
BY_LENGTH = {
    "memory": "peak memory of the service in MB",
    "p50": "median in milliseconds",
    "p99": "p99 in milliseconds",
    "documents": "documents per second",
}


def rate_sweeps(tests: Iterable[LoadTest]) -> dict[str, list[LoadTest]]:
    """Tests that differ in the offered load alone, by what they share, newest first."""
    groups: dict[str, list[LoadTest]] = {}
    for test in tests:
        if test.model == "open":
            when = test.created[:10] if not test.sweep else test.sweep
            groups.setdefault(f"{name_of(test)} · {when}", []).append(test)
    return {
        name: sorted(group, key=lambda test: test.offered_per_second or 0)
        for name, group in groups.items()
        if len({test.offered_per_second for test in group}) > 1
    }


def peak_of(tests: Iterable[LoadTest]) -> str:
    """What a search for the peak found, or nothing when these tests are none."""
    trials = [test for test in tests if "peak" in test.settings]
    if not trials:
        return ""
    limit = str(trials[0].settings["peak"]).replace("=", " under ")
    kept = [test.offered_per_second or 0.0 for test in trials if test.settings.get("kept")]
    if not kept:
        return f"No rate that was tried kept {limit} with no errors."
    return f"Peak: {max(kept):.4g} requests a second kept {limit} with no errors."


def length_sweeps(tests: Iterable[LoadTest]) -> dict[str, list[LoadTest]]:
    """Tests at several fixed lengths that belong together, by when they ran, newest first."""
    groups: dict[str, list[LoadTest]] = {}
    for test in tests:
        if test.length and test.sweep:
            groups.setdefault(test.sweep, []).append(test)
    named: dict[str, list[LoadTest]] = {}
    for sweep, group in groups.items():
        if len({test.length for test in group}) > 1:
            name = f"{group[-1].created[:16].replace('T', ' ')} · {load_of(group[-1])}"
            named[name if name not in named else f"{name} · {sweep}"] = group
    return named


def against_length(
    tests: Sequence[LoadTest], metric: str, limits: Mapping[str, int] | None = None
) -> Figure:
    """The service's memory, latency or throughput against length, a line for each attention.

    `limits` are the most tokens that a bundle reads at once: lines with longer documents say so.
    """
    rows: list[Row] = []
    named = {(test.attention or test.server): _title(test, tests, limits or {}) for test in tests}
    for test in tests:
        memory = test.service_memory_bytes
        rows.append(
            {
                "attention": test.attention or test.server,
                "title": named[test.attention or test.server],
                "service": service_of(test),
                "length": test.length,
                "load": load_of(test),
                "memory": None if memory is None else memory / 1e6,
                "p50": to_ms(test.p50),
                "p99": to_ms(test.p99),
                "documents": test.documents_per_second,
                "requests": test.requests,
                "errors": sum(test.errors.values()),
            }
        )
    shown = [row for row in rows if row[metric]]
    order = in_order(row["attention"] for row in shown)
    looks = {named[attention]: look(attention) for attention in order}
    how = channels("title:N", looks)
    base = alt.Chart(data(shown)).encode(
        x=length_axis(row["length"] for row in shown),
        y=log_axis(f"{metric}:Q", BY_LENGTH[metric], [row[metric] for row in shown]),
        color=how["color"],
        detail="service:N",
    )
    tips = ["service:N", "load:N", alt.Tooltip("length:Q", title="tokens", format=","),
            alt.Tooltip("memory:Q", title="MB", format=",.0f"),
            alt.Tooltip("p50:Q", title="median ms", format=",.1f"),
            alt.Tooltip("p99:Q", title="p99 ms", format=",.1f"),
            alt.Tooltip("documents:Q", title="documents/s", format=",.2f"), "requests:Q",
            "errors:Q"]  # fmt: skip
    lines = base.mark_line(strokeWidth=2).encode(strokeDash=how["strokeDash"])
    points = base.mark_point(size=60, filled=True, opacity=1)
    drawn = finish([lines, points.encode(shape=how["shape"], tooltip=tips)])
    return Figure(drawn, rows, looks)


def _title(test: LoadTest, tests: Sequence[LoadTest], limits: Mapping[str, int]) -> str:
    """What served; with how much it reads at once where that is less than the longest document."""
    name = title(test.attention or test.server)
    limit = limits.get(test.bundle.name) if test.bundle else None
    longest = max(each.length or 0 for each in tests)
    return f"{name}, windows of {limit:,}" if limit and limit < longest else name
