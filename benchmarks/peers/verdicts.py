"""Where a peer is ahead of Longdoc, and whether its goals are reached."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median

from benchmarks.peers.figures import COLUMNS, Cell, Results
from benchmarks.peers.registry import OURS, OURS_AUTO, SERVERS
from benchmarks.peers.settings import LEVEL
from benchmarks.peers.workload import LETTERS, TITLES

_NAMES = {server.name: server.title for server in SERVERS}
_PEERS = tuple(server.name for server in SERVERS if not server.is_ours)


@dataclass(frozen=True)
class Goal:
    """A ratio of Longdoc's figure to the best peer's, and the bound it shall keep."""

    load: str
    column: str
    bound: float
    server: str = OURS

    def sentence(self, results: Results) -> str:
        """The goal, the ratio found, the peer it was held against, and whether it is reached."""
        more = COLUMNS[self.column]
        auto = ", `--precision auto`" * (self.server == OURS_AUTO)
        text = (
            f"({LETTERS[self.load]}) {self.column} over the best peer's, "
            f"at {'least' if more else 'most'} {self.bound:.2g}{auto}"
        )
        mine = _middle(results, self.server, self.load, self.column)
        others = others_of(results, self.load, self.column)
        if mine is None or not others:
            return f"{text}: not measured"
        best = (max if more else min)(others, key=lambda name: others[name])
        ratio = _ratio(mine, others[best])
        reached = ratio >= self.bound if more else ratio <= self.bound
        return f"{text}: {ratio:.2f} ({_NAMES[best]}), {_verdict(reached)}"


GOALS = (
    *(Goal(load, "documents/s", 1.0) for load in ("fixed", "mixed")),
    *(Goal(load, "documents/s", 1.6, OURS_AUTO) for load in ("fixed", "mixed")),
    Goal("mixed", "p50", 0.25),
    Goal("mixed", "p99", 1.5),
    *(Goal(load, "p99", 1.0) for load in ("fixed", "behind", "bursts")),
    Goal("behind", "p99 of short", 1 / 3),
    *(Goal(load, "memory", 1.0) for load in TITLES),
)


def where_behind(results: Results) -> list[str]:
    """A sentence for each load and column in which a peer is ahead."""
    lines = []
    for load, letter in LETTERS.items():
        ours = results.row(OURS, load)
        if ours is None or ours.failure:
            lines.append(f"({letter}): Longdoc was not measured")
            continue
        for column in COLUMNS:
            for server, value in others_of(results, load, column).items():
                mine = ours.cells.get(column)
                if mine is not None and ahead(value, mine.middle, COLUMNS[column]):
                    lines.append(
                        f"({letter}) {column}: {_NAMES[server]}, "
                        f"{_ratio(value, mine.middle):.2f} of Longdoc's figure"
                    )
    starts = {name: start.middle for name in _NAMES if (start := results.start(name))}
    lines += [
        f"first answer: {_NAMES[name]} after {seconds:.2f} s, Longdoc after {starts[OURS]:.2f} s"
        for name, seconds in starts.items()
        if name in _PEERS and OURS in starts and ahead(seconds, starts[OURS], more=False)
    ]
    return lines


def ahead(theirs: float, ours: float, more: bool) -> bool:
    """Whether theirs is better by more than what is level."""
    if more:
        return theirs > ours * (1 + LEVEL)
    return theirs < ours * (1 - LEVEL)


def goals(results: Results) -> list[str]:
    """Each goal with the figure, and whether it is reached."""
    return [_over_limit(results), *(goal.sentence(results) for goal in GOALS)]


def _over_limit(results: Results) -> str:
    """The share of the limit: the median of the rounds' ratios, with their range.

    A machine's speed drifts from round to round, which the ratio of two medians would not show.
    """
    text = "(b) documents/s over those of the graph without a server, at least 0.9"
    ours, limit = results.row(OURS, "mixed"), results.limit("mixed")
    if ours is None or limit is None or ours.failure:
        return f"{text}: not measured"
    both = zip(ours.cells["documents/s"].values, limit.values, strict=False)
    ratios = [_ratio(mine, most) for mine, most in both]
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    return f"{text}: {median(ratios):.2f} ({spread}), {_verdict(median(ratios) >= 0.9)}"


def others_of(results: Results, load: str, column: str) -> dict[str, float]:
    """The peers' figures under a load."""
    found = {name: _middle(results, name, load, column) for name in _PEERS}
    return {name: value for name, value in found.items() if value is not None}


def _middle(results: Results, server: str, load: str, column: str) -> float | None:
    row = results.row(server, load)
    cell: Cell | None = row.cells.get(column) if row is not None else None
    return None if cell is None else cell.middle


def _ratio(value: float, other: float) -> float:
    if math.isinf(value) and math.isinf(other):
        return 1.0
    return value / other if other else math.inf


def _verdict(reached: bool) -> str:
    return "reached" if reached else "missed"
