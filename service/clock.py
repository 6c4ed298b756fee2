"""The time that threads go by: the system's, or one that a test moves by hand."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Clock:
    """The system's monotonic time."""

    def __init__(self) -> None:
        #: Seconds since some moment in the past.
        self.now: Callable[[], float] = time.monotonic

    def sleep(self, seconds: float) -> None:
        """Block the calling thread."""
        time.sleep(seconds)

    def alarm(self, lock: threading.Lock) -> threading.Condition:
        """A condition that one thread waits on, with the lock held."""
        return threading.Condition(lock)


class VirtualClock(Clock):
    """Time that stands still until `advance` moves it, so that tests of threads never sleep.

    `sleep` and an alarm's `wait` end when `advance` reaches their time. `settle` blocks until
    every one of a number of threads is held up here: nothing can then happen before the next
    `advance` or the next call from outside, which makes a test of threads repeatable.
    """

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self.now = lambda: self._now  # what `advance` has added up to
        self._changed = threading.Condition()
        self._sleeping: list[float] = []  # when each ends
        self._waiting: dict[_VirtualAlarm, float] = {}  # when each gives up

    def sleep(self, seconds: float) -> None:
        """Block the calling thread until the time has been moved so far."""
        if seconds <= 0:
            return
        with self._changed:
            until = self._now + seconds
            self._sleeping.append(until)
            self._changed.notify_all()
            while self._now < until:
                self._changed.wait()

    def alarm(self, lock: threading.Lock) -> threading.Condition:
        """A condition whose timeouts follow this clock."""
        return _VirtualAlarm(lock, self)

    def settle(self, threads: int, patience: float = 10.0) -> None:
        """Wait until so many threads sleep or wait for an alarm."""
        with self._changed:
            held_up = self._changed.wait_for(
                lambda: len(self._sleeping) + len(self._waiting) >= threads, patience
            )
        if not held_up:
            raise TimeoutError(f"not all of {threads} threads came to rest in {patience:g} s")

    def advance(self, seconds: float) -> None:
        """Move the time on and let go every thread whose time has come."""
        with self._changed:
            self._now += seconds
            self._sleeping = [until for until in self._sleeping if until > self._now]
            due = [alarm for alarm, until in self._waiting.items() if until <= self._now]
            self._changed.notify_all()
        for alarm in due:
            with alarm:
                alarm.notify()

    def stop(self) -> None:
        """Let every sleep end at once from now on, so that what runs can be closed."""
        self.advance(float("inf"))

    def next_event(self) -> float | None:
        """When the next sleep or timeout ends; None when nothing waits for a time."""
        with self._changed:
            times = [*self._sleeping, *self._waiting.values()]
        nearest = min(times, default=float("inf"))
        return None if nearest == float("inf") else nearest

    def _begin_wait(self, alarm: _VirtualAlarm, timeout: float | None) -> None:
        with self._changed:
            self._waiting[alarm] = float("inf") if timeout is None else self._now + timeout
            self._changed.notify_all()

    def _end_wait(self, alarm: _VirtualAlarm) -> None:
        with self._changed:
            self._waiting.pop(alarm, None)


class _VirtualAlarm(threading.Condition):
    """Counts its waiter as held up from `wait` to `notify`, not until the waiter has woken."""

    def __init__(self, lock: threading.Lock, clock: VirtualClock) -> None:
        super().__init__(lock)
        self._clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        if timeout is not None and timeout <= 0:
            return False
        self._clock._begin_wait(self, timeout)
        return super().wait()

    def notify(self, n: int = 1) -> None:
        self._clock._end_wait(self)
        super().notify(n)
