"""Coordinates a load: reads the service's metrics and memory, collects every sample,
ends the load when it is over, and writes the result. Runs under gevent, in Locust's local or
master process.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import gevent

from benchmarks.load.samples import REFUSED_CONNECTION, Sample, Usage
from loadtests.memory import ServiceMemory
from loadtests.plan import PROGRESS, RESULT, Plan
from loadtests.service_client import ServiceClient, ServiceClientError
from models.files import written_whole

_LOST_SECONDS = 10.0  # when for so long no connection was had, the service is gone
_RECENT = 5.0
_PATIENCE = 15.0  # beyond a request's own time


class Coordinator:
    """Follows one load from its start to its result."""

    def __init__(self, plan: Plan, folder: Path, number: int, rate: float, users: int) -> None:
        self.plan = plan
        self._rate, self._users = rate, users  # as the plan has them, or as set in the browser
        self._folder = folder
        self._number = number
        self._client = ServiceClient(plan.address, plan.key, seconds=5.0)
        self._memory = ServiceMemory(self._client, plan.pid)
        self._idle = self._memory.now()
        self._memory.forget_peak()
        self._before = self._metrics()
        self._samples: list[Sample] = []
        self._usages: dict[str, Usage] = {}
        self._held: list[tuple[float, int]] = []
        self._finished: set[str] = set()
        self._flying: dict[str, int] = {}
        self._written = False
        self._stopped: float | None = None
        self._began = time.perf_counter() + plan.warm_up

    @property
    def clock(self) -> float:
        """Seconds since the warm-up's end."""
        return time.perf_counter() - self._began

    def take(
        self, who: str, samples: Iterable[Sample], usage: Usage, *, flying: int, finished: bool
    ) -> None:
        """Collect what a process of the generator reports."""
        self._samples += samples
        self._usages[who] = usage
        self._flying[who] = flying
        if finished:
            self._finished.add(who)

    def stop(self) -> None:
        """Note that nothing more is sent from now on: somebody has stopped the load by hand."""
        if self._stopped is None:
            self._stopped = self.clock

    def follow(self, refresh: Callable[[], object], end: Callable[[], object]) -> None:
        """Monitor until the load is over, write the result, and end all."""
        note = ""
        while len(self._finished) < max(1, self.plan.workers):
            gevent.sleep(max(0.05, 1.0 - time.time() % 1.0))
            refresh()
            self._look()
            note = self._lost() or self._too_late()
            if note or self._written:
                break
        self.write(note)
        end()

    def write(self, note: str = "") -> None:
        """Write the result, once."""
        if self._written:
            return
        self._written = True
        result = {
            "rate": self._rate,
            "users": self._users,
            "samples": self._samples,
            "metrics_before": self._before,
            "metrics_after": self._metrics(),
            "memory": self._held,
            "memory_idle": self._idle,
            "memory_peak": self._memory.peak(),
            "usages": [[u.cpu_seconds, u.seconds, u.overslept] for u in self._usages.values()],
            "seconds": max(0.0, self._end()),
            "in_flight": sum(self._flying.values()),
            "note": note,
        }
        _replace(self._folder / RESULT.format(self._number), result)

    def _look(self) -> None:
        held = self._memory.now()
        if held is not None:
            self._held.append((round(self.clock, 3), held))
        recent = [s for s in self._samples if s.due + s.seconds > self.clock - _RECENT]
        times = sorted(s.seconds for s in recent if s.counts)
        progress = {
            "number": self._number,
            "clock": self.clock,
            "requests": len(self._samples),
            "errors": sum(bool(s.error) for s in self._samples),
            "refused": sum(s.refused for s in self._samples),
            "per_second": len(recent) / _RECENT,
            "p50": times[len(times) // 2] if times else None,
            "p99": times[int(len(times) * 0.99)] if times else None,
            "in_flight": sum(self._flying.values()),
            "memory": held,
        }
        _replace(self._folder / PROGRESS, progress)

    def _lost(self) -> str:
        """A sentence when nothing has answered for a while, else nothing."""
        recent = [s for s in self._samples if s.due + s.seconds > self.clock - _LOST_SECONDS]
        if len(recent) > 2 and all(s.error == REFUSED_CONNECTION for s in recent):
            return f"ended early: no connection for {_LOST_SECONDS:g} seconds"
        return ""

    def _too_late(self) -> str:
        plan = self.plan
        if plan.seconds is None:
            return ""
        latest = max(plan.seconds, plan.most_seconds) + plan.timeout + _PATIENCE
        return "some requests never came back" if self.clock > latest else ""

    def _end(self) -> float:
        """When the load itself ended: by hand, as planned, or with its last request."""
        now = self.clock if self._stopped is None else self._stopped
        if self.plan.seconds is None:
            return now
        return min(now, max([self.plan.seconds, *(s.due for s in self._samples)]))

    def _metrics(self) -> dict[str, float]:
        try:
            return self._client.metrics()
        except ServiceClientError:
            return {}


def _replace(path: Path, content: dict[str, Any]) -> None:
    """Write a file in one step, so that nobody reads half of it."""
    with written_whole(path) as partial:
        partial.write_text(json.dumps(content), encoding="utf-8")
