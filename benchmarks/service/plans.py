"""How much to measure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """Rounds, documents and seconds of each measure.

    overhead_rounds      bare engine and service take turns so many times for each length
    overhead_documents   of the mixed lengths; of equal ones a part
    mixed_rounds         every server once a round; the batching one every second round
    mixed_documents      sent in each
    open_rounds          of short behind long
    open_seconds         each
    overload_rounds      floods
    overload_seconds     each, at five times capacity
    starts               cold starts
    """

    overhead_rounds: int
    overhead_documents: int
    mixed_rounds: int
    mixed_documents: int
    open_rounds: int
    open_seconds: float
    overload_rounds: int
    overload_seconds: float
    starts: int


#: Shows that all works.
QUICK = Plan(2, 120, 1, 120, 1, 8, 1, 8, 2)
#: Gives the figures; meant for half an hour on two cores.
FULL = Plan(8, 2000, 6, 800, 5, 30, 3, 60, 8)
