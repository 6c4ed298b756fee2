"""The cost model: seconds of one core that a document of so many tokens takes.

Fitted at warm-up, corrected by every run since. It decides whether a document is long,
whether a request is admitted, what `Retry-After` says and what `/estimate` answers.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Iterable

import numpy as np

_REFIT_AFTER = 128  # observations
_MEMORY = 0.2  # weight of a new observation against those of about the same length
_UNFITTED = (1e-3, 1e-5, 0.0)  # before any observation: a guess for a small model


class CostModel:
    """`seconds(n) = a + b·n + c·n²` with a, b, c ≥ 0, fitted to the relative error.

    Observations are kept as one average per half octave of length, so that many short
    documents do not drown the few long ones.
    """

    def __init__(self, samples: Iterable[tuple[int, float]] = ()) -> None:
        self._lock = threading.Lock()
        self._averages: dict[int, tuple[float, float]] = {}  # half octave: (tokens, seconds)
        self._coefficients = _UNFITTED
        self._unseen = 0
        for tokens, seconds in samples:
            self._remember(tokens, seconds)
        self._refit()

    @property
    def coefficients(self) -> tuple[float, float, float]:
        """a, b and c."""
        return self._coefficients

    def seconds(self, tokens: float) -> float:
        """Predicted seconds of one core for one document."""
        a, b, c = self._coefficients
        return a + b * tokens + c * tokens * tokens

    def tokens(self, seconds: float) -> float:
        """The length at which a document is predicted to take so long; infinite where none is."""
        a, b, c = self._coefficients
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
            self._coefficients = _fit(list(self._averages.values()))


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
