"""Load tests: runs over time, latency against load and length, errors, two runs compared."""

from __future__ import annotations

import streamlit as st

from benchmarks.records import LoadTest
from dashboard import controls
from dashboard.comparison import grouped_rows, newest_first
from dashboard.data import classifiers, results
from dashboard.load_charts import (
    PERCENTILES,
    against_load,
    by_length,
    error_rows,
    kind_rows,
    load_of,
    name_of,
    over_time,
    service_of,
)
from dashboard.load_sweeps import BY_LENGTH, against_length, length_sweeps, peak_of, rate_sweeps

_LEAST_POINTS = 3  # of a line that is drawn; fewer are a table
_NAMES = {"memory": "Memory", "p50": "Median", "p99": "p99", "documents": "Documents/s"}


def draw() -> None:
    controls.heading(
        "Load tests",
        "How running services held up. Times count from when a request was due, so a stalled "
        "service cannot hide its stall.",
    )
    found = results()
    controls.show_problems(found)
    tests = newest_first(found.load_tests)
    if not tests:
        controls.empty("No load test has been run yet.", "longdoc loadtest --help")
        return
    number, text = st.column_config.NumberColumn, st.column_config.TextColumn
    columns = {name: number(f"{name} ms", format="%.0f", width=62) for name in PERCENTILES}
    columns |= {name: number(name, format="%.1f") for name in ("answered/s", "documents/s")}
    columns["memory MB"] = number("memory MB", format="%.0f")
    widths = {"when": 118, "service": 165, "documents": 100}
    words = {name: text(width=width) for name, width in widths.items()}
    controls.show_table(grouped_rows(tests), "load-tests", **words, **columns)
    if any(test.run in found.runs and found.runs[test.run].busy for test in tests):
        st.caption("Some of these ran while others kept the machine busy: compare them with "
                   "each other, not with another machine's.")  # fmt: skip
    _draw_lengths(tests)
    _draw_sweep(tests)
    _draw_comparison(tests)


def _draw_lengths(tests: list[LoadTest]) -> None:
    groups = length_sweeps(tests)
    if not groups:
        return
    st.subheader("The service against document length")
    chosen = st.selectbox("Sweep over lengths", list(groups), key="lengths", bind="query-params")
    metric = controls.choose_one("Show", list(BY_LENGTH), "figure", lambda name: _NAMES[name])
    sweep = groups[chosen or next(iter(groups))]
    limits = {each.name: each.max_tokens for each in classifiers()}
    controls.show_figure(against_length(sweep, metric, limits), "load-against-length")
    st.caption(
        "Each service reads as its bundle does: what a legend gives in windows is not read whole, "
        "as [cost by length](cost) has it."
    )


def _draw_sweep(tests: list[LoadTest]) -> None:
    groups = rate_sweeps(tests)
    if not groups:
        return
    st.subheader("Latency against offered load")
    chosen = st.selectbox("Sweep over rates", list(groups), key="sweep", bind="query-params")
    sweep = groups[chosen or next(iter(groups))]
    if len({test.offered_per_second for test in sweep}) < _LEAST_POINTS:
        controls.show_table(grouped_rows(sweep), "latency-by-load")
    else:
        controls.show_figure(against_load(sweep), "latency-by-load")
    peak = peak_of(sweep)
    if peak:
        st.markdown(f"**{peak}**")


def _draw_comparison(tests: list[LoadTest]) -> None:
    st.subheader("One run, or two compared")
    names: dict[str, LoadTest] = {}
    for test in tests:
        name = f"{test.created[:16].replace('T', ' ')} · {name_of(test)} · {load_of(test)}"
        names.setdefault(name, test)
    chosen = st.multiselect(
        "Runs",
        list(names),
        default=_beside_each_other(names),
        max_selections=2,
        key="compare",
        bind="query-params",
    )
    pair = [(name, names[name]) for name in chosen]
    if not pair:
        st.info("Choose one or two runs.")
        return
    if any(len(test.by_length) > 1 for _, test in pair):
        st.markdown("**By document length**")
        percentile = controls.choose_one("Percentile", ["p99", "p95", "p50"], "percentile")
        controls.show_figure(by_length(pair, percentile), "load-by-length")
    if any(test.by_second for _, test in pair):
        st.markdown("**Over time**")
        controls.show_figure(over_time(pair), "load-over-time")
    kinds = kind_rows(pair)
    if kinds:
        st.markdown("**By kind of caller**")
        controls.show_table(kinds, "load-by-kind")
    st.markdown("**Errors by kind**")
    errors = error_rows(pair)
    if errors:
        controls.show_table(errors, "load-errors")
    else:
        st.caption("None.")


def _beside_each_other(names: dict[str, LoadTest]) -> list[str]:
    """Our newest run, and the newest of another service under the same load, if there is one."""
    newest, *others = names.items()
    scenario, service = newest[1].scenario, service_of(newest[1])
    alike = [n for n, test in others if test.scenario == scenario and service_of(test) != service]
    return [newest[0], *alike[:1]]
