"""Where a peer is ahead, and whether what was aimed at is reached."""

from __future__ import annotations

import math
from statistics import median

from benchmarks.peers.figures import COLUMNS, Results
from benchmarks.peers.registry import LIMIT, OURS, SERVERS
from benchmarks.peers.tuning import LEVEL
from benchmarks.peers.workload import TITLES

_BATCHING = ("litserve", "bentoml", "ray", "mlserver")
_NAMES = {server.name: server.title for server in SERVERS}


def where_behind(results: Results) -> list[str]:
    """A sentence for each load and column in which a peer is ahead."""
    lines = []
    for load, letter in zip(TITLES, "abcd", strict=True):
        ours = results.row(OURS, load)
        if ours is None or ours.failure:
            lines.append(f"({letter}): Longdoc was not measured")
            continue
        for column, mine in ours.cells.items():
            for server, value in _others(results, load, column).items():
                if ahead(value, mine.middle, COLUMNS[column]):
                    lines.append(
                        f"({letter}) {column}: {_NAMES[server]}, "
                        f"{_ratio(value, mine.middle):.2f} of Longdoc's figure"
                    )
    starts = {name: start.middle for name in _NAMES if (start := results.start(name))}
    lines += [
        f"first answer: {_NAMES[name]} after {seconds:.2f} s, Longdoc after {starts[OURS]:.2f} s"
        for name, seconds in starts.items()
        if OURS in starts and ahead(seconds, starts[OURS], more=False)
    ]
    return lines


def ahead(theirs: float, ours: float, more: bool) -> bool:
    """Whether theirs is better by more than what is level."""
    if more:
        return theirs > ours * (1 + LEVEL)
    return theirs < ours * (1 - LEVEL)


def goals(results: Results) -> list[str]:
    """What was aimed at, with the figure and whether it is reached."""
    lines = []
    mine = _middle(results, OURS, "mixed", "documents/s")
    batching = _best(results, _BATCHING, "mixed", "documents/s")
    short = _middle(results, OURS, "behind", "p99 of short")
    peers = tuple(name for name in _NAMES if name != OURS)
    best_short = _best(results, peers, "behind", "p99 of short")
    memory = _middle(results, OURS, "behind", "memory")
    best_memory = _best(results, peers, "behind", "memory")
    aims = (
        ("(b) documents/s over the best batching peer's, at least 2", mine, batching, 2.0, True),
        ("(c) p99 of short over the best peer's, at most 0.5", short, best_short, 0.5, False),
        ("(c) memory over the smallest peer's, below 1", memory, best_memory, 1.0, False),
    )
    for text, value, other, bound, upward in aims:
        if value is None or other is None:
            lines.append(f"{text}: not measured")
            continue
        ratio = _ratio(value, other)
        reached = ratio >= bound if upward else ratio <= bound
        lines.append(f"{text}: {ratio:.2f}, {_verdict(reached)}")
    lines.insert(1, _over_limit(results))
    return lines


def _over_limit(results: Results) -> str:
    """How near ours comes to the limit: the median of the rounds' ratios, with their range.

    A machine's speed drifts from round to round, which the ratio of two medians would not show.
    """
    text = "(b) documents/s over the limit, at least 0.9"
    ours, limit = results.row(OURS, "mixed"), results.row(LIMIT, "mixed")
    if ours is None or limit is None or ours.failure:
        return f"{text}: not measured"
    both = zip(ours.cells["documents/s"].values, limit.cells["documents/s"].values, strict=False)
    ratios = [_ratio(mine, most) for mine, most in both]
    middle = median(ratios)
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    return f"{text}: {middle:.2f} ({spread}), {_verdict(middle >= 0.9)}"


def _verdict(reached: bool) -> str:
    return "reached" if reached else "missed"


def _others(results: Results, load: str, column: str) -> dict[str, float]:
    found = {}
    for name in _NAMES:
        value = _middle(results, name, load, column)
        if name != OURS and value is not None:
            found[name] = value
    return found


def _best(results: Results, names: tuple[str, ...], load: str, column: str) -> float | None:
    values = [_middle(results, name, load, column) for name in names]
    known = [value for value in values if value is not None]
    return (max if COLUMNS[column] else min)(known, default=None)


def _middle(results: Results, server: str, load: str, column: str) -> float | None:
    row = results.row(server, load)
    cell = row.cells.get(column) if row is not None else None
    return None if cell is None else cell.middle


def _ratio(value: float, other: float) -> float:
    if math.isinf(value) and math.isinf(other):
        return 1.0
    return value / other if other else math.inf
