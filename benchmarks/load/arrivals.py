"""When requests are due, independent of how the service answers.

A schedule is an endless stream of seconds from its start, in order. Each request is sent at its
time, whether or not earlier ones were answered, and its latency counts from that time.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import takewhile


def poisson(rate: float, source: random.Random) -> Iterator[float]:
    """Arrivals of many independent callers: `rate` a second on average."""
    due = 0.0
    while True:
        due += source.expovariate(rate)
        yield due


def evenly(rate: float) -> Iterator[float]:
    """Arrivals at equal distances."""
    number = 0
    while True:
        number += 1
        yield number / rate


def bursts(
    rate: float, source: random.Random, *, every: float = 5.0, share: float = 0.2, peak: float = 4.0
) -> Iterator[float]:
    """Poisson arrivals whose rate is `peak` times the mean for a share of each period.

    The mean over a period is `rate`; between bursts what is left of it arrives.
    """
    if not (0 < share < 1 and 1 <= peak <= 1 / share):
        raise ValueError("a burst must take a share of the time and leave arrivals for the rest")
    calm = rate * (1 - share * peak) / (1 - share)
    start = 0.0
    while True:
        middle = start + share * every
        yield from _between(start, middle, rate * peak, source)
        yield from _between(middle, start + every, calm, source)
        start += every


def until(seconds: float, schedule: Iterator[float]) -> Iterator[float]:
    """The part of a schedule that is due within `seconds`."""
    return takewhile(lambda due: due < seconds, schedule)


def _between(start: float, end: float, rate: float, source: random.Random) -> Iterator[float]:
    if rate > 0:
        yield from (start + due for due in until(end - start, poisson(rate, source)))
