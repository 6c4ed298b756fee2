"""Which of its settings a peer runs with under each load: measured, stored, and chosen by figures.

Trials are load tests of the sweep `settings`. Saturating loads are decided by documents a second,
loads on schedule by latency: the lowest geometric mean of p50 and p99. Whatever failed more than
another by half a percent of the requests loses to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.peers.registry import Server, Settings
from benchmarks.records import TRIALS, LoadTest

LEVEL = 0.02  # a difference below this share is none
_FAILED = 0.005


@dataclass(frozen=True)
class Trial:
    """What a server did under a load with some settings."""

    settings: Settings
    test: LoadTest

    @property
    def failed(self) -> float:
        """The share of requests without an answer; 1 when the server did not start."""
        test = self.test
        return sum(test.errors.values()) / test.requests if test.requests else 1.0

    @property
    def merit(self) -> float:
        """The figure that decides; more is better."""
        if self.test.model == "closed":
            return self.test.answered_per_second
        if not self.test.p50 or not self.test.p99:
            return 0.0
        return 1 / math.sqrt(self.test.p50 * self.test.p99)


def trials_of(server: Server, load: str, tests: Iterable[LoadTest]) -> list[Trial]:
    """The last trial of each of a server's settings under a load, in the order of `tried`."""
    found = {
        _key(test.settings["server"]): test
        for test in tests
        if test.sweep == TRIALS and test.server == server.name and test.scenario == load
    }
    known = [settings for settings in server.tried if _key(settings) in found]
    return [Trial(settings, found[_key(settings)]) for settings in known]


def best_settings(server: Server, load: str, tests: Iterable[LoadTest]) -> Settings:
    """The settings that did best under a load; the first of `tried` before any trial.

    Of several within 2% of the best it is the first that was tried: one trial decides no closer.
    """
    trials = trials_of(server, load, tests)
    least = min((trial.failed for trial in trials), default=0.0)
    fit = [trial for trial in trials if trial.failed <= least + _FAILED]
    most = max((trial.merit for trial in fit), default=0.0)
    level = (trial.settings for trial in fit if trial.merit >= most * (1 - LEVEL))
    return next(level, server.tried[0])


def _key(settings: Settings) -> str:
    return repr(sorted(settings.items(), key=str))
