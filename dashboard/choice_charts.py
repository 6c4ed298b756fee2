"""Charts of candidates and of scores. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from dashboard.chart_parts import Figure, Row, data, finish, log_ticks, rule
from dashboard.choosing import Candidate
from dashboard.looks import Look, channels
from dashboard.series import looks_of, title

_ROW_HEIGHT = 24
_SERVICES = (Look("#0077bb", shape="circle"), Look("#d55e00", (8, 3), "diamond"))


def choice_chart(ranked: Sequence[Candidate], target_ms: float | None) -> Figure:
    """Predicted p95 of each candidate, in the order of the ranking, with the target as a line."""
    rows = [
        {
            "candidate": candidate.title,
            "title": title(candidate.attention),
            "p95": candidate.p95_ms,
            "memory": candidate.memory_mb,
            "rate": candidate.documents_per_second,
            "fits": candidate.fits,
        }
        for candidate in ranked
    ]
    looks = looks_of(candidate.attention for candidate in ranked)
    how = channels("title:N", looks)
    values = [candidate.p95_ms for candidate in ranked] + ([target_ms] if target_ms else [])
    points = alt.Chart(data(rows)).mark_point(size=110, filled=True)
    layers = [
        points.encode(
            x=alt.X(
                "p95:Q",
                title="predicted p95 in milliseconds",
                scale=alt.Scale(type="log", nice=False, padding=20),
                axis=alt.Axis(values=log_ticks(values), format="~s"),
            ),
            y=alt.Y(
                "candidate:N",
                sort=[candidate.title for candidate in ranked],
                title=None,
                axis=alt.Axis(labelLimit=230),
            ),
            color=how["color"],
            shape=how["shape"],
            opacity=alt.condition("datum.fits", alt.value(1), alt.value(0.35)),
            tooltip=[
                "candidate:N",
                alt.Tooltip("p95:Q", title="p95 ms", format=",.0f"),
                alt.Tooltip("memory:Q", title="MB", format=",.0f"),
                alt.Tooltip("rate:Q", title="documents/s", format=",.1f"),
            ],
        )
    ]
    if target_ms:
        layers.append(rule("x", target_ms))
    height = 80 + _ROW_HEIGHT * len(rows)
    return Figure(finish(layers).properties(height=height), rows, looks)


def score_chart(rows: Sequence[Row]) -> Figure:
    """Scores by label, of one or two services."""
    services = list(dict.fromkeys(row["service"] for row in rows))
    looks = {name: _SERVICES[index % 2] for index, name in enumerate(services)}
    how = channels("service:N", looks)
    labels = list(dict.fromkeys(row["label"] for row in rows))
    bars = alt.Chart(data(rows)).mark_bar()
    chart = bars.encode(
        x=alt.X("score:Q", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%", tickCount=5)),
        y=alt.Y("label:N", sort=labels, title=None, axis=alt.Axis(labelLimit=230)),
        yOffset=alt.YOffset("service:N"),
        color=how["color"],
        tooltip=["service:N", "label:N", alt.Tooltip("score:Q", format=".4f")],
    )
    height = 80 + _ROW_HEIGHT * len(labels) * len(services)
    return Figure(finish([chart]).properties(height=height), rows, looks)
