"""How each attention looks on every page: its title, colour, dash and marker.

The colours are told apart with the common forms of colour blindness, on white and on black; dash
and marker differ as well, so that no figure depends on colour alone.
"""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.records import UNFUSED
from dashboard.looks import SOLID, Look
from models.mechanisms import ATTENTIONS

APPEARANCE = {
    "softmax": Look("#808080", SOLID, "circle"),
    UNFUSED: Look("#808080", (2, 3), "square"),
    "linformer": Look("#0077bb", SOLID, "triangle-up"),
    "nystromformer": Look("#d55e00", SOLID, "diamond"),
    "performer": Look("#009e73", (8, 3), "cross"),
    "kernelized": Look("#a6761d", (2, 3), "triangle-down"),
    "skyformer": Look("#e69f00", (8, 3), "triangle-right"),
    "infinite_former": Look("#cc79a7", SOLID, "square"),
    "linear": Look("#56b4e9", (8, 3), "circle"),
    "longformer": Look("#7b68c8", (5, 2, 1, 2), "triangle-left"),
    "efficient": Look("#b8336a", (12, 2), "triangle-up"),
    "bigbird": Look("#5b8c2a", (3, 1), "square"),
    "sparse": Look("#8c3b2e", (10, 2, 2, 2), "circle"),
    "blockwise": Look("#3f5fa8", (6, 4), "cross"),
    "reformer": Look("#b09a00", (4, 4), "triangle-left"),
    "informer": Look("#2f9c95", (12, 2, 1, 2, 1, 2), "diamond"),
}
_UNKNOWN = Look("#808080", (1, 2), "circle")


def look(attention: str) -> Look:
    """How an attention looks; one that is not registered looks plain."""
    return APPEARANCE.get(attention, _UNKNOWN)


def title(attention: str) -> str:
    if attention == UNFUSED:
        return "Softmax, unfused"
    return ATTENTIONS[attention].title if attention in ATTENTIONS else attention


def in_order(attentions: Iterable[str]) -> list[str]:
    """Attentions in the order of legends, unknown ones last."""
    order = {name: index for index, name in enumerate(APPEARANCE)}
    return sorted(set(attentions), key=lambda name: (order.get(name, len(order)), name))


def looks_of(attentions: Iterable[str]) -> dict[str, Look]:
    """The looks of these attentions by title, in the order of legends."""
    return {title(name): look(name) for name in in_order(attentions)}
