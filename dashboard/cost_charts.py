"""Charts of time and memory against length. Pure functions of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from dashboard.chart_parts import Figure, Row, data, finish, length_axis, log_axis, rule
from dashboard.looks import Look, channels
from dashboard.series import in_order, look

METRICS = {
    "latency": "milliseconds per run",
    "throughput": "tokens per second",
    "memory": "peak memory in MB",
}

_TOOLTIP = [
    alt.Tooltip("title:N", title="attention"),
    alt.Tooltip("length:Q", title="tokens", format=","),
    alt.Tooltip("latency:Q", title="median ms", format=",.2f"),
    alt.Tooltip("p95:Q", title="p95 ms", format=",.2f"),
    alt.Tooltip("throughput:Q", title="tokens/s", format=",.0f"),
    alt.Tooltip("memory:Q", title="peak MB", format=",.1f"),
    alt.Tooltip("runs:Q", title="runs"),
]


def cost_chart(
    rows: Sequence[Row], metric: str, crossings: Sequence[Row] = (), title: str = ""
) -> Figure:
    """One line per attention with its spread; rings where it overtakes fused softmax."""
    shown = [row for row in rows if row[metric] is not None and row[metric] > 0]
    looks = {row["title"]: look(row["attention"]) for row in _in_legend_order(shown)}
    how = channels("title:N", looks)
    spread = metric != "memory"
    ends = (f"{metric}_low", f"{metric}_high") if spread else (metric,)
    values = [row[end] for row in shown for end in ends]
    base = alt.Chart(data(shown)).encode(
        x=length_axis(row["length"] for row in shown), color=how["color"]
    )
    y = log_axis(f"{metric}:Q", METRICS[metric], values)
    layers: list[alt.Chart] = []
    if spread:
        bottom = log_axis(f"{metric}_low:Q", METRICS[metric], values)
        layers.append(base.mark_area(opacity=0.15).encode(y=bottom, y2=f"{metric}_high:Q"))
    layers.append(base.mark_line(strokeWidth=2).encode(y=y, strokeDash=how["strokeDash"]))
    points = base.mark_point(size=55, filled=True, opacity=1)
    layers.append(points.encode(y=y, shape=how["shape"], tooltip=_TOOLTIP))
    if metric == "latency":
        layers += _rings(crossings, how)
    return Figure(finish(layers, title), rows, looks)


def _in_legend_order(rows: Sequence[Row]) -> list[Row]:
    order = in_order(row["attention"] for row in rows)
    return sorted(rows, key=lambda row: order.index(row["attention"]))


def _rings(crossings: Sequence[Row], how: dict[str, Any]) -> list[alt.Chart]:
    found = [row for row in crossings if row["at"] is not None]
    if not found:
        return []
    ring = alt.Chart(data(found)).mark_point(
        size=260, filled=False, strokeWidth=2.5, shape="circle"
    )
    tooltip = [
        alt.Tooltip("title:N", title="faster than fused softmax"),
        alt.Tooltip("at:Q", title="from about, tokens", format=",.0f"),
    ]
    return [ring.encode(x="at:Q", y="latency:Q", color=how["color"], tooltip=tooltip)]


def gains_chart(rows: Sequence[Row], quantity: str) -> Figure:
    """Linformer's gain over softmax against length: the paper's and ours."""
    names = {
        f"paper_{quantity}": "paper, over softmax",
        f"our_{quantity}": "ours, over softmax unfused",
        f"fused_{quantity}": "ours, over softmax fused",
    }
    looks = dict(
        zip(
            names.values(),
            (
                Look("#d55e00", (2, 3), "diamond"),
                Look("#0077bb", shape="triangle-up"),
                Look("#56b4e9", (8, 3), "circle"),
            ),
            strict=True,
        )
    )
    long = [
        {"length": row["length"], "gain": row[field], "which": name}
        for row in rows
        for field, name in names.items()
        if row[field] is not None
    ]
    how = channels("which:N", looks)
    tooltip = [
        "which:N",
        alt.Tooltip("length:Q", format=","),
        alt.Tooltip("gain:Q", format=".2f"),
    ]
    base = alt.Chart(data(long)).encode(
        x=length_axis(row["length"] for row in rows),
        y=log_axis("gain:Q", f"times less {quantity}", [1, *(row["gain"] for row in long)], "~g"),
        color=how["color"],
    )
    lines = base.mark_line(strokeWidth=2).encode(strokeDash=how["strokeDash"])
    points = base.mark_point(size=60, filled=True).encode(shape=how["shape"], tooltip=tooltip)
    return Figure(finish([rule("y", 1), lines, points]), rows, looks)
