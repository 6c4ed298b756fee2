"""How the lines of a chart look, and the legend that explains them on a page of any width."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

import altair as alt

SOLID = (1, 0)
MUTED = "#8a8a8a"  # readable on white and on black

#: Outlines of the markers in a box of 10 by 10.
_OUTLINES = {
    "circle": "M5 1a4 4 0 1 0 .01 0z",
    "square": "M1.5 1.5h7v7h-7z",
    "triangle-up": "M5 1L9 8.5H1z",
    "triangle-down": "M5 9L1 1.5h8z",
    "triangle-right": "M9 5L1.5 9V1z",
    "triangle-left": "M1 5L8.5 1v8z",
    "diamond": "M5 .5L9 5L5 9.5L1 5z",
    "cross": "M3.5 1h3v2.5H9v3H6.5V9h-3V6.5H1v-3h2.5z",
    "none": "",
}


@dataclass(frozen=True)
class Look:
    """A line's colour, dash and marker."""

    colour: str
    dash: tuple[int, ...] = SOLID
    shape: str = "circle"


def channels(field: str, looks: Mapping[str, Look]) -> dict[str, Any]:
    """Colour, dash and shape for a field whose values have these looks, with one legend."""
    names = list(looks)
    legend = alt.Legend(title=None, orient="bottom", columns=4, symbolSize=90, labelLimit=300)

    def scale(values: list[Any]) -> alt.Scale:
        return alt.Scale(domain=names, range=values)

    colours = scale([look.colour for look in looks.values()])
    dashes = scale([list(look.dash) for look in looks.values()])
    shapes = scale([look.shape for look in looks.values()])
    return {
        "color": alt.Color(field, scale=colours, legend=legend),
        "strokeDash": alt.StrokeDash(field, scale=dashes, legend=None),
        "shape": alt.Shape(field, scale=shapes, legend=legend),
    }


def legend_html(looks: Mapping[str, Look]) -> str:
    """The legend as HTML that wraps: a piece of each line with its marker, and its name."""
    items = "".join(
        '<span style="display: inline-flex; align-items: center; gap: .35rem">'
        f'<img alt="" width="34" height="12" src="{_sample(look)}">{escape(name)}</span>'
        for name, look in looks.items()
    )
    return (
        '<div style="display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; font-size: .85rem">'
        f"{items}</div>"
    )


def _sample(look: Look) -> str:
    """A piece of the line as a picture in an address."""
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" width="34" height="12">'
        f'<line x1="0" y1="6" x2="34" y2="6" stroke="{look.colour}" stroke-width="2" '
        f'stroke-dasharray="{_dasharray(look)}"/>'
        f'<path transform="translate(12 1)" d="{_OUTLINES[look.shape]}" fill="{look.colour}"/>'
        "</svg>"
    )
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def _dasharray(look: Look) -> str:
    return "none" if look.dash == SOLID else " ".join(map(str, look.dash))
