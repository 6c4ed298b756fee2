"""Measuring again what other virtual machines disturbed.

A virtual machine does not own its cores: the host gives them to others for a while, and the
kernel counts that time as stolen. What was measured meanwhile says more about the neighbours than
about this program, so it is measured again. Only the time stolen decides that, never the result.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")

MOST_STOLEN = 0.03  # share of the cores' time that may be stolen without measuring again
TRIES = 4

_STAT = Path("/proc/stat")
# Of user, nice, system, idle, waiting, interrupts, soft interrupts, stolen.
_IDLE, _WAITING, _STOLEN, _KINDS = 3, 4, 7, 8
_LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class Taken(Generic[T]):
    """What was measured, the share of the cores' time that was stolen meanwhile, and the tries."""

    value: T
    stolen: float
    tries: int


def undisturbed(
    measure: Callable[[], T],
    tries: int = TRIES,
    *,
    can_again: Callable[[], bool] = lambda: True,
    stat: Path = _STAT,
) -> Taken[T]:
    """Measure until hardly any time was stolen, at most `tries` times; the least disturbed try.

    Before each try but the first `can_again` is asked whether there may be another.
    """
    found: list[tuple[float, T]] = []
    while not found or (found[-1][0] > MOST_STOLEN and len(found) < tries and can_again()):
        before = _ticks(stat)
        value = measure()
        spent = [now - then for now, then in zip(_ticks(stat), before, strict=True)]
        found.append((spent[_STOLEN] / max(1, sum(spent)), value))
    stolen, value = min(found, key=lambda each: each[0])
    return Taken(value, stolen, len(found))


def cores_in_use(stat: Path = _STAT) -> float:
    """How many cores other programs use at the moment.

    Without /proc/stat it is the last minute's load, which also counts what has ended since.
    """
    if not stat.exists():
        return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else 0.0
    before = _ticks(stat)
    time.sleep(_LOOK_SECONDS)
    spent = [now - then for now, then in zip(_ticks(stat), before, strict=True)]
    idle = spent[_IDLE] + spent[_WAITING]
    return round((sum(spent) - idle) / max(1, sum(spent)) * (os.cpu_count() or 1), 2)


def _ticks(stat: Path) -> list[int]:
    """The cores' time by what it went to; zeros where there is no /proc/stat."""
    if not stat.exists():
        return [0] * _KINDS
    return [int(field) for field in stat.read_text().split("\n", 1)[0].split()[1 : _KINDS + 1]]
