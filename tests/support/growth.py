"""How a call's processor time grows with its input."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_LARGER = 4
_MOST = 9.0  # linear work takes 4 times as long on 4 times the input, quadratic work 16 times
_NEGLIGIBLE = 0.02  # seconds; below that, a ratio says nothing


def grows_no_faster_than_its_input(
    make: Callable[[int], T], call: Callable[[T], object], size: int
) -> None:
    """Fail when four times the input takes nine times the time, or more."""
    small, large = make(size), make(_LARGER * size)
    for _ in range(3):  # another process may disturb a measurement
        before = _seconds(call, small)
        after = _seconds(call, large)
        if after < _NEGLIGIBLE or after < _MOST * before:
            return
    raise AssertionError(f"{before:.3f} s, but {after:.3f} s for {_LARGER} times the input")


def _seconds(call: Callable[[T], object], given: T) -> float:
    gc.collect()
    gc.disable()  # it comes now and then, and then takes as long as all the rest
    try:
        begin = time.thread_time()
        call(given)
        return time.thread_time() - begin
    finally:
        gc.enable()
