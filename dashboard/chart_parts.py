"""What the charts share: axes, sizes, pictures. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import vl_convert

from dashboard.looks import MUTED, Look

Row = dict[str, Any]

HEIGHT = 420
_LEAST_TICKS = 3
#: Round numbers of a decade, from few to many.
_STEPS = ((1,), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7), tuple(n / 10 for n in range(10, 100)))


@dataclass(frozen=True)
class Figure:
    """A chart, the rows it shows, and how its lines look."""

    chart: alt.LayerChart
    rows: Sequence[Row]
    looks: Mapping[str, Look]


def length_axis(lengths: Iterable[float], field: str = "length:Q", name: str = "tokens") -> alt.X:
    """A logarithmic axis of document lengths, with ticks where something was measured."""
    ticks = sorted({round(n) for n in lengths})
    label = "datum.value >= 1024 ? format(datum.value / 1024, '~r') + 'k' : datum.value"
    bounds = [ticks[0], ticks[-1]] if ticks else [1, 2]
    return alt.X(
        field,
        title=name,
        scale=alt.Scale(type="log", base=2, domain=bounds, nice=False, padding=12),
        axis=alt.Axis(values=ticks, labelExpr=label, labelOverlap=True, grid=False),
    )


def log_axis(field: str, name: str, values: Iterable[float | None], form: str = "~s") -> alt.Y:
    """A logarithmic axis that holds the values, with few grid lines."""
    ticks = log_ticks(values)
    return alt.Y(
        field,
        title=name,
        scale=alt.Scale(type="log", nice=False, padding=10),
        axis=alt.Axis(values=ticks, format=form, gridOpacity=0.6),
    )


def log_ticks(values: Iterable[float | None]) -> list[float]:
    """At least three round numbers about the values: powers of ten where those are enough."""
    positive = [value for value in values if value is not None and value > 0]
    if not positive:
        return [1.0]
    low, high = min(positive), max(positive)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    ticks: list[float] = []
    for steps in _STEPS if last - first > 3 else _STEPS[1:]:
        ticks = [step * 10.0**power for power in range(first - 1, last + 1) for step in steps]
        ticks = [tick for tick in ticks if low * 0.8 <= tick <= high * 1.25]
        if len(ticks) >= _LEAST_TICKS:
            break
    return ticks


def finish(layers: Sequence[alt.Chart], title: str = "") -> alt.LayerChart:
    """The layers as one chart, with size and title."""
    chart = alt.LayerChart(layer=list(layers)).properties(height=HEIGHT, width="container")
    if title:
        heading = alt.TitleParams(title, anchor="start", fontSize=14, fontWeight="normal")
        chart = chart.properties(title=heading)
    return chart


def rule(channel: str, value: float) -> alt.Chart:
    """A dashed line at a value of x or y."""
    chart = alt.Chart(data([{"at": value}])).mark_rule(color=MUTED, strokeDash=[5, 4])
    drawn: alt.Chart = chart.encode(**{channel: "at:Q"})
    return drawn


def data(rows: Sequence[Row]) -> alt.InlineData:
    return alt.InlineData(values=list(rows))


def without_legend(chart: alt.LayerChart) -> alt.LayerChart:
    """The same chart for a page that shows the legend itself."""
    bare: alt.LayerChart = chart.copy(deep=True)
    for layer in bare.layer:
        for channel in ("color", "shape"):
            encoded = getattr(layer.encoding, channel)
            if encoded is not alt.Undefined:
                encoded.legend = None
    return bare


def to_png(chart: alt.LayerChart) -> bytes:
    """The chart as a picture on white, wide enough for a slide."""
    spec = chart.properties(width=880).to_dict()
    spec["background"] = "white"
    png: bytes = vl_convert.vegalite_to_png(spec, scale=2)
    return png
