"""Charts of accuracy against cost, and of approximation error. Pure functions of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import altair as alt

from dashboard.chart_parts import Figure, Row, data, finish, log_axis, log_ticks, rule
from dashboard.looks import MUTED, Look, channels
from dashboard.series import look, looks_of

METRICS = {"accuracy": "accuracy", "macro_f1": "macro-F1"}
_BASELINE = Look(MUTED, (5, 4), "none")


def accuracy_chart(rows: Sequence[Row], metric: str, baseline: tuple[str, float] | None) -> Figure:
    """Points of accuracy against latency, the Pareto front, the baseline as a line."""
    shown = [row for row in rows if row["latency"] is not None and row[metric] is not None]
    looks = looks_of(row["attention"] for row in shown)
    how = channels("title:N", looks)
    x = alt.X(
        "latency:Q",
        title="milliseconds per document",
        scale=alt.Scale(type="log", nice=False, padding=30),
        axis=alt.Axis(values=log_ticks(r["latency"] for r in shown), format="~s", grid=False),
    )
    y = alt.Y(f"{metric}:Q", title=METRICS[metric], scale=alt.Scale(zero=False, padding=20))
    tooltip = [
        alt.Tooltip("title:N", title="attention"),
        alt.Tooltip("accuracy:Q", format=".4f"),
        alt.Tooltip("macro_f1:Q", title="macro-F1", format=".4f"),
        alt.Tooltip("latency:Q", title="ms", format=",.1f"),
    ]
    base = alt.Chart(data(shown)).encode(x=x, color=how["color"])
    layers: list[alt.Chart] = []
    if metric == "accuracy":
        front = alt.Chart(data([row for row in shown if row["front"]]))
        layers.append(front.mark_line(color=MUTED, strokeWidth=1.5).encode(x=x, y=y))
        low = alt.Y("low:Q", title=METRICS[metric])
        layers.append(base.mark_rule(opacity=0.45).encode(y=low, y2="high:Q"))
    points = base.mark_point(size=130, filled=True, opacity=1)
    layers.append(points.encode(y=y, shape=how["shape"], tooltip=tooltip))
    if baseline is not None:
        layers += [rule("y", baseline[1]), _label(baseline)]
        looks[f"{baseline[0]}: {baseline[1]:.3f}"] = _BASELINE
    return Figure(finish(layers), rows, looks)


def _label(baseline: tuple[str, float]) -> alt.Chart:
    name, value = baseline
    text = alt.Chart(data([{"at": value, "name": f"{name}: {value:.3f}"}])).mark_text(
        align="right", baseline="bottom", dx=-4, dy=-3, color=MUTED
    )
    label: alt.Chart = text.encode(x=alt.value("width"), y="at:Q", text="name:N")
    return label


def read_chart(rows: Sequence[Row], metric: str) -> Figure:
    """Accuracy against how much of each document was read."""
    shown = [{**row, "tokens": None} for row in rows if row[metric] is not None]
    order = list(dict.fromkeys(r["read"] for r in sorted(rows, key=lambda row: row["tokens"])))
    looks = looks_of(row["attention"] for row in shown)
    how = channels("title:N", looks)
    base = alt.Chart(data(shown)).encode(
        x=alt.X("read:O", sort=order, title="tokens read", axis=alt.Axis(labelAngle=0)),
        y=alt.Y(f"{metric}:Q", title=METRICS[metric], scale=alt.Scale(zero=False)),
        color=how["color"],
    )
    tooltip = ["title:N", "read:O", alt.Tooltip(f"{metric}:Q", format=".4f")]
    points = base.mark_point(size=60, filled=True, opacity=1)
    layers = [
        base.mark_line(strokeWidth=2).encode(strokeDash=how["strokeDash"]),
        points.encode(shape=how["shape"], tooltip=tooltip),
    ]
    return Figure(finish(layers), shown, looks)


def fidelity_chart(rows: Sequence[Row]) -> Figure:
    """Approximation error against budget, one line per approximation."""
    looks: dict[str, Look] = {}
    for row in rows:
        own = look(row["attention"])
        if any(own.colour == other.colour for other in looks.values()):
            own = replace(own, dash=(2, 3), shape="square")  # a second form of one mechanism
        looks.setdefault(row["approximation"], own)
    how = channels("approximation:N", looks)
    budgets = sorted({row["budget"] for row in rows})
    errors = [row[end] for row in rows for end in ("least", "most")]
    base = alt.Chart(data(rows)).encode(
        x=alt.X(
            "budget:Q",
            title="budget",
            scale=alt.Scale(type="log", base=2, nice=False, padding=12),
            axis=alt.Axis(values=budgets, format="~d", grid=False),
        ),
        color=how["color"],
    )
    y = log_axis("error:Q", "relative error", errors, "~g")
    bottom = log_axis("least:Q", "relative error", errors, "~g")
    tooltip = [
        "approximation:N",
        "budget_name:N",
        alt.Tooltip("budget:Q", format=","),
        alt.Tooltip("error:Q", format=".2e"),
        alt.Tooltip("least:Q", format=".2e"),
        alt.Tooltip("most:Q", format=".2e"),
    ]
    points = base.mark_point(size=60, filled=True, opacity=1)
    layers = [
        base.mark_area(opacity=0.15).encode(y=bottom, y2="most:Q"),
        base.mark_line(strokeWidth=2).encode(y=y, strokeDash=how["strokeDash"]),
        points.encode(y=y, shape=how["shape"], tooltip=tooltip),
    ]
    return Figure(finish(layers), rows, looks)
