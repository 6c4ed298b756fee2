"""Line charts as SVG, for a report that loads nothing from elsewhere. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise

WIDTH, HEIGHT = 720, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 24, 12, 44
_ROOM = 48  # for a label on the axis
_COLOURS = ("#0077bb", "#d55e00", "#009e73", "#cc79a7", "#808080", "#e69f00", "#56b4e9", "#7b68c8",
            "#a6761d")  # fmt: skip
_DASHES = ("", "7 3", "2 3", "8 3 2 3")

Points = Sequence[tuple[float, float]]


def line_chart(
    lines: Mapping[str, Points], *, x: str, y: str, log_x: bool = False, log_y: bool = False
) -> str:
    """A chart of named lines with axes and a legend; nothing when there are no points."""
    lines = {name: _drawable(points, log_x, log_y) for name, points in lines.items()}
    lines = {name: points for name, points in lines.items() if points}
    if not lines:
        return ""
    xs = [a for points in lines.values() for a, _ in points]
    ys = [b for points in lines.values() for _, b in points]
    across = _Scale(xs, _LEFT, WIDTH - _RIGHT, log_x, from_zero=False)
    up = _Scale(ys, HEIGHT - _BOTTOM, _TOP, log_y, from_zero=True)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(y)} by {escape(x)}">'
    ]
    parts += [_grid_line(up.place(tick), _label(tick)) for tick in up.ticks()]
    parts += [_tick(across.place(tick), _label(tick)) for tick in _marks(across, xs)]
    parts.append(
        f'<text x="{(WIDTH + _LEFT) / 2}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x)}</text>'
    )
    parts.append(
        f'<text x="14" y="{HEIGHT / 2 - 14}" text-anchor="middle" '
        f'transform="rotate(-90 14 {HEIGHT / 2 - 14})">{escape(y)}</text>'
    )
    for index, (name, points) in enumerate(lines.items()):
        parts.append(_line(name, [(across.place(a), up.place(b)) for a, b in points], index))
    return "".join([*parts, "</svg>", _legend(list(lines))])


class _Scale:
    """From values to places on the paper."""

    def __init__(
        self, values: Sequence[float], start: float, end: float, log: bool, *, from_zero: bool
    ) -> None:
        low, high = min(values), max(values)
        if from_zero and not log:
            low = 0.0
        if low == high:
            low, high = (low / 2, high * 2) if log else (low, low + 1)
        self._log, self._start, self._end = log, start, end
        self._low, self._high = self._turn(low), self._turn(high)

    def place(self, value: float) -> float:
        """Where a value stands."""
        share = (self._turn(value) - self._low) / (self._high - self._low)
        return round(self._start + share * (self._end - self._start), 1)

    def ticks(self) -> list[float]:
        """Round values in the range."""
        if not self._log:
            return self._inside(_even_ticks(self._low, self._high))
        powers = range(math.floor(self._low), math.ceil(self._high) + 1)
        steps = (1, 2, 5) if self._high - self._low < 3 else (1,)
        found = self._inside([step * 10.0**power for power in powers for step in steps])
        if len(found) >= 3:
            return found
        return self._inside(_even_ticks(10.0**self._low, 10.0**self._high))

    def _inside(self, ticks: Sequence[float]) -> list[float]:
        return [tick for tick in ticks if self._low - 1e-9 <= self._turn(tick) <= self._high + 1e-9]

    def _turn(self, value: float) -> float:
        return math.log10(value) if self._log else value


def _even_ticks(low: float, high: float) -> list[float]:
    """Three to nine round values, each as far from the next."""
    width = (high - low) / 8
    unit = 10.0 ** math.floor(math.log10(width))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= width)
    first = math.ceil(low / step)
    return [step * number for number in range(first, first + 9)]


def _marks(across: _Scale, values: Sequence[float]) -> list[float]:
    """The values themselves when they are few and have room for their labels, else round ones."""
    own = sorted(set(values))
    places = [across.place(value) for value in own]
    apart = min((right - left for left, right in pairwise(places)), default=0.0)
    return own if apart >= _ROOM else across.ticks()


def _drawable(points: Points, log_x: bool, log_y: bool) -> list[tuple[float, float]]:
    return sorted((a, b) for a, b in points if (a > 0 or not log_x) and (b > 0 or not log_y))


def _line(name: str, places: Points, index: int) -> str:
    colour, dash = _COLOURS[index % len(_COLOURS)], _DASHES[index % len(_DASHES)]
    path = " ".join(f"{a},{b}" for a, b in places)
    dots = "".join(f'<circle cx="{a}" cy="{b}" r="3" fill="{colour}"/>' for a, b in places)
    return (
        f'<g><title>{escape(name)}</title><polyline points="{path}" fill="none" stroke="{colour}" '
        f'stroke-width="2" stroke-dasharray="{dash}"/>{dots if len(places) < 40 else ""}</g>'
    )


def _legend(names: Sequence[str]) -> str:
    if len(names) < 2:
        return ""
    items = "".join(
        f'<span><svg width="26" height="10"><line x1="0" y1="5" x2="26" y2="5" stroke-width="2" '
        f'stroke="{_COLOURS[i % len(_COLOURS)]}" stroke-dasharray="{_DASHES[i % len(_DASHES)]}"/>'
        f"</svg> {escape(name)}</span>"
        for i, name in enumerate(names)
    )
    return f'<p class="legend">{items}</p>'


def _grid_line(y: float, label: str) -> str:
    return (
        f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y}" y2="{y}" class="grid"/>'
        f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{label}</text>'
    )


def _tick(x: float, label: str) -> str:
    return f'<text x="{x}" y="{HEIGHT - _BOTTOM + 18}" text-anchor="middle">{label}</text>'


def _label(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 10 else f"{value:.3g}"
