"""A document's text with its evidence marked, as HTML in which nothing of the text is code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

_AROUND = 200  # characters shown before and after a passage when the text is long
_LONG = 20_000


def highlight(text: str, passages: Sequence[Mapping[str, Any]]) -> str:
    """The text with passages marked, the stronger the deeper; a long text is cut between them."""
    strongest = max((abs(float(p["weight"])) for p in passages), default=1.0) or 1.0
    spans = sorted(
        (max(0, int(p["start"])), min(len(text), int(p["end"])), float(p["weight"]))
        for p in passages
    )
    short = len(text) <= _LONG
    pieces, at = [], 0
    for start, end, weight in spans:
        if start < at or end <= start:
            continue
        pieces.append(_between(text[at:start], short, first=at == 0))
        depth = 0.25 + 0.5 * abs(weight) / strongest
        pieces.append(
            f'<mark style="background: rgba(230, 159, 0, {depth:.2f}); color: inherit" '
            f'title="adds {weight:+.3f} to the label">{escape(text[start:end])}</mark>'
        )
        at = end
    rest = text[at:]
    pieces.append(escape(rest if short or len(rest) <= _AROUND else rest[:_AROUND] + " …"))
    return (
        '<div style="white-space: pre-wrap; overflow-wrap: anywhere; line-height: 1.55; '
        'max-height: max(30rem, 70vh); overflow-y: auto">' + "".join(pieces) + "</div>"
    )


def _between(text: str, short: bool, first: bool) -> str:
    if short or len(text) <= 2 * _AROUND:
        return escape(text)
    start = "" if first else text[:_AROUND]
    return escape(start + " … " + text[-_AROUND:])
