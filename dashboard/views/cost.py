"""Cost by length: time, throughput and memory against the length of a document."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from benchmarks.records import Measurement
from dashboard import controls
from dashboard.cost_charts import METRICS, cost_chart, gains_chart
from dashboard.costs import cost_rows, crossovers, left_out, paper_gains
from dashboard.data import classifiers, results
from dashboard.reading import in_windows
from dashboard.series import in_order, title

_DATASET = "elife"  # whose bundles read documents as the second choice has it
_WHOLE = "whole"
_READINGS = {
    _WHOLE: "Every attention reads the whole document at once: the same work for all.",
    "as bundles do": "As each bundle of eLife reads: longer documents than it takes at once in "
    "windows, one after the other; the legend says of how many tokens.",
}


def draw() -> None:
    controls.heading(
        "Cost by length",
        "What a document of a given length costs with each attention. The band is where 80% of "
        "the runs lie; a ring marks where an attention overtakes fused softmax.",
    )
    found = results()
    controls.show_problems(found)
    run = controls.choose_run(found)
    if run is None:
        controls.empty("Nothing has been measured yet.", "longdoc bench --quick")
        return
    measurements = found.measurements[run.run]
    metric = controls.choose_one("Show", list(METRICS), "show", str.capitalize)
    chosen, engines = _select(measurements)
    if not chosen:
        st.info("Nothing is selected: choose an attention, an engine and a precision.")
        return
    reading = controls.choose_one("Documents are read", list(_READINGS), "reading")
    st.caption(_READINGS[reading])
    rows, crossings = cost_rows(chosen), crossovers(chosen)
    if reading != _WHOLE:
        limits = {
            each.attention: each.max_tokens for each in classifiers() if each.dataset == _DATASET
        }
        rows, crossings = in_windows(rows, limits), []
    for engine, precision in engines:
        mine = [r for r in rows if (r["engine"], r["precision"]) == (engine, precision)]
        rings = [c for c in crossings if (c["engine"], c["precision"]) == (engine, precision)]
        if mine:
            figure = cost_chart(mine, metric, rings, controls.engine_title(engine, precision))
            controls.show_figure(figure, f"{metric}-{engine}-{precision}")
    if reading == _WHOLE:
        _draw_crossovers(crossings)
    _draw_gains(measurements, engines[0])
    missing = left_out(measurements)
    if missing:
        with st.expander(f"{len(missing)} configurations were not measured, and why"):
            controls.show_table(missing, "not-measured")


def _select(
    measurements: Sequence[Measurement],
) -> tuple[list[Measurement], list[tuple[str, str]]]:
    """The measurements that the user wants to see, and their engines and precisions."""
    measured = [m for m in measurements if m.status == "measured"]
    pairs: dict[str, tuple[str, str]] = {}
    for m in sorted(measured, key=lambda m: (m.engine, m.precision)):
        pairs[controls.engine_title(m.engine, m.precision)] = (m.engine, m.precision)
    attentions = in_order({m.attention for m in measured})
    batches = sorted({m.batch for m in measured})
    left, right = st.columns(2)
    with left:
        names = st.multiselect(
            "Engines and precisions",
            list(pairs),
            default=list(pairs)[:1],
            key="engines",
            bind="query-params",
        )
    with right:
        kept = st.multiselect(
            "Attentions",
            attentions,
            default=attentions,
            format_func=title,
            key="attentions",
            bind="query-params",
        )
    batch = batches[0] if batches else 1
    if len(batches) > 1:
        batch = int(controls.choose_one("Batch", [str(b) for b in batches], "batch"))
    engines = [pairs[name] for name in names]
    shown = [
        m
        for m in measured
        if m.attention in kept and m.batch == batch and (m.engine, m.precision) in engines
    ]
    return shown, engines


def _draw_crossovers(crossings: list[controls.Row]) -> None:
    st.subheader("From which length each attention beats fused softmax")
    if not crossings:
        st.caption("Fused softmax is not among what is shown, so there is nothing to compare with.")
        return
    rows = [
        {
            "attention": row["title"],
            "engine": controls.engine_title(row["engine"], row["precision"]),
            "faster": row["words"],
            "crossing at": row["at"],
            "gain at the longest": row["gain"],
            "longest": row["longest"],
        }
        for row in crossings
    ]
    controls.show_table(
        rows,
        "crossovers",
        **{
            "crossing at": st.column_config.NumberColumn("crossing at", format="%.0f tokens"),
            "gain at the longest": st.column_config.NumberColumn("gain there", format="%.2f ×"),
            "longest": st.column_config.NumberColumn("longest", format="%d tokens"),
        },
    )


def _draw_gains(measurements: Sequence[Measurement], engine: tuple[str, str]) -> None:
    rows = paper_gains(measurements, *engine)
    if all(row["our_time"] is None for row in rows):
        return
    st.subheader("Linformer's gain over softmax: the paper's and ours")
    st.markdown(
        "The paper (k = 128) compares with softmax that computes all n × n scores; so does "
        "*unfused* here. A fused kernel never stores them, which is the comparison that counts "
        f"today. Measured with {controls.engine_title(*engine)}."
    )
    quantity = controls.choose_one("Gain in", ["time", "memory"], "gain")
    controls.show_figure(gains_chart(rows, quantity), f"gains-{quantity}")
