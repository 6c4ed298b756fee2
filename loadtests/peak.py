"""Finds the highest arrival rate that a service bears, by bisection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

MOST_TRIALS = 14


@dataclass(frozen=True)
class Peak:
    """The highest rate that was kept (0: none), the lowest that was not (None: none was tried)."""

    kept: float
    missed: float | None
    trials: int


def find_peak(
    keeps: Callable[[float], bool],
    start: float,
    *,
    precision: float = 0.1,
    most_trials: int = MOST_TRIALS,
    again: bool = False,
) -> Peak:
    """Double or halve until the peak lies between two rates, then halve the distance.

    Ends when the two differ by at most `precision`, or after `most_trials`. With `again`, a rate
    counts as missed only when it was missed twice: one disturbance must not end the search low.
    """
    kept, missed, rate, trials = 0.0, None, start, 0
    while trials < most_trials:
        trials += 1
        if keeps(rate) or (again and keeps(rate)):
            kept = rate
        else:
            missed = rate
        if missed is None:
            rate = 2 * kept
        elif kept == 0:
            rate = missed / 2
        elif missed <= kept * (1 + precision):
            break
        else:
            rate = (kept + missed) / 2
    return Peak(kept, missed, trials)
