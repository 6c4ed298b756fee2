"""What a document will cost and wait, and the refusal of what there is no room for.

The cost model is fitted at warm-up and corrected by every run since. It decides whether a document
is long, whether a request is admitted, what `Retry-After` says and what `/estimate` answers.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from service.errors import Overloaded

if TYPE_CHECKING:
    from service.scheduling.decide import State

_REFIT_AFTER = 128  # observations
_MEMORY = 0.2  # weight of a new observation against those of about the same length
_FORGET = 0.95  # weight of what was before, at each new run
_UNFITTED = (1e-3, 1e-5, 0.0)  # before any observation: a guess for a small model


class CostModel:
    """`seconds(n) = a + b·n + c·n²` with a, b, c ≥ 0, fitted to the relative error.

    Observations are kept as one average per half octave of length, so that many short
    documents do not drown the few long ones.
    """

    def __init__(self, samples: Iterable[tuple[int, float]] = ()) -> None:
        self._lock = threading.Lock()
        self._averages: dict[int, tuple[float, float]] = {}  # half octave: (tokens, seconds)
        self.coefficients = _UNFITTED  # a, b and c
        self._unseen = 0
        for tokens, seconds in samples:
            self._remember(tokens, seconds)
        self._refit()

    def seconds(self, tokens: float) -> float:
        """Predicted seconds of one core for one document."""
        a, b, c = self.coefficients
        return a + b * tokens + c * tokens * tokens

    def tokens(self, seconds: float) -> float:
        """The length at which a document is predicted to take so long; infinite where none is."""
        a, b, c = self.coefficients
        left = max(0.0, seconds - a)
        if c > 0:
            return (math.sqrt(b * b + 4 * c * left) - b) / (2 * c)
        return left / b if b > 0 else math.inf

    def observe(self, tokens: int, seconds: float) -> None:
        """Learn from a finished run of one document."""
        with self._lock:
            self._remember(tokens, seconds)
            self._unseen += 1
            if self._unseen >= _REFIT_AFTER:
                self._refit()

    def _remember(self, tokens: int, seconds: float) -> None:
        bucket = round(2 * math.log2(max(tokens, 1)))
        if bucket in self._averages:
            n, s = self._averages[bucket]
            tokens_mean = n + _MEMORY * (tokens - n)
            self._averages[bucket] = (tokens_mean, s + _MEMORY * (seconds - s))
        else:
            self._averages[bucket] = (float(tokens), seconds)

    def _refit(self) -> None:
        self._unseen = 0
        if self._averages:
            self.coefficients = _fit(list(self._averages.values()))


class Admission:
    """Predicts waits from the state, and refuses what there is no room for."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._recent_seconds = self._recent_work = 1e-3  # of the short documents' last runs
        #: How many seconds a worker for short documents lately needed for a second of work: more
        #: than one where other programs, or the limits of a container, take their part.
        self.slowdown = 1.0
        self.short = state.short
        self._set_room()

    def _set_room(self) -> None:
        policy = self._state.policy
        #: Seconds of short documents' work above which they are refused: until then there is room
        #: for something.
        self.room = policy.queue_seconds * policy.workers / self.slowdown

    @property
    def long_tokens(self) -> float:
        """The length from which a document is long."""
        return self._state.long_tokens

    def expected_wait(self, work: float) -> float:
        """Predicted seconds until a document of so much work would start.

        Short documents wait for short ones only. Long ones wait for the long ones before them,
        while short ones leave them no more than their share of the cores.
        """
        fast, long = self._state.short.backlog, self._state.long.backlog
        if work < self._state.border:
            return self.slowdown * fast / self._state.policy.workers
        taken_by_short = min(fast, long * (1 / self._state.policy.long_share - 1))
        return self.slowdown * (long + taken_by_short) / self._state.policy.long_workers

    def learn_pace(self, seconds: float, work: float) -> None:
        """Learn from a run of short documents; to be called by one thread at a time."""
        self._recent_seconds = _FORGET * self._recent_seconds + seconds
        self._recent_work = _FORGET * self._recent_work + max(work, 1e-6)
        self.slowdown = max(1.0, self._recent_seconds / self._recent_work)
        self._set_room()

    def admit(self, work: float, patience: float) -> None:
        """Refuse a request that the queue is too full for, or that would wait past its time."""
        wait = self.expected_wait(work)
        if wait > self._state.policy.queue_seconds:
            raise self._refusal(wait)
        if wait > patience:
            raise Overloaded(retry_after=wait - patience)

    def is_full(self, most_work: float) -> bool:
        """Whether there is no room for a document of at most so much work, short or long."""
        if self.short.backlog <= self.room:
            return False
        is_long = most_work >= self._state.border
        return not is_long or self.expected_wait(most_work) > self._state.policy.queue_seconds

    def refuse_if_full(self, most_work: float) -> None:
        """Refuse, before any work on it, what there is no room for."""
        if self.is_full(most_work):
            raise self._refusal(min(self.expected_wait(0.0), self.expected_wait(most_work)))

    def _refusal(self, wait: float) -> Overloaded:
        return Overloaded(retry_after=wait - self._state.policy.queue_seconds / 2)


def _fit(points: list[tuple[float, float]]) -> tuple[float, float, float]:
    """The non-negative a, b, c with the least relative error: the best of all subsets."""
    n = np.array([p[0] for p in points])  # (points,)
    s = np.maximum(np.array([p[1] for p in points]), 1e-9)
    terms = np.stack([np.ones_like(n), n, n * n], axis=1) / s[:, None]  # (points, 3)
    best, best_error = (0.0, float(np.mean(s / n)), 0.0), math.inf
    for size in range(1, min(3, len(points)) + 1):
        for chosen in itertools.combinations((1, 0, 2), size):  # proportional first
            columns = terms[:, chosen]
            solution = np.linalg.lstsq(columns, np.ones(len(n)), rcond=None)[0]
            error = float(np.sum((columns @ solution - 1) ** 2))
            if (solution >= 0).all() and error < best_error * 0.999:
                values = [0.0, 0.0, 0.0]
                for index, value in zip(chosen, solution, strict=True):
                    values[index] = float(value)
                best, best_error = (values[0], values[1], values[2]), error
    return best
