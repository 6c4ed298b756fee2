"""Histograms for Prometheus that cost a request next to nothing.

A value is only kept when it is observed. It is sorted into its bucket together with many others:
when somebody asks, or before they become too many. The client library's own histogram takes some
microseconds and a lock for each value, of which a request has half a dozen.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np
from prometheus_client import CollectorRegistry
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

_MANY = 1024  # values kept


class Tally:
    """The values of one distribution, or of one label of it. Thread-safe."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = np.array(bounds)
        self._counts = np.zeros(len(bounds) + 1, dtype=np.int64)  # of each bucket alone
        self._sum = 0.0
        self._kept: deque[float] = deque()
        self._lock = threading.Lock()

    def observe(self, value: float) -> None:
        """Count a value."""
        self._kept.append(value)
        if len(self._kept) >= _MANY:
            self.read()

    def read(self) -> tuple[list[int], float]:
        """How many values are at most each bound, how many there are, and their sum."""
        with self._lock:
            values = np.array([self._kept.popleft() for _ in range(len(self._kept))], dtype=float)
            places = np.searchsorted(self._bounds, values)  # (values,)
            self._counts += np.bincount(places, minlength=len(self._counts))
            self._sum += float(values.sum())
            return np.cumsum(self._counts).tolist(), self._sum


class Distribution(Collector):
    """A histogram with at most one label, whose tallies count what is observed."""

    def __init__(
        self,
        name: str,
        meaning: str,
        bounds: Sequence[float],
        registry: CollectorRegistry,
        label: str | None = None,
    ) -> None:
        self._name, self._meaning, self._bounds, self._label = name, meaning, bounds, label
        self._tallies: dict[str, Tally] = {}
        if label is None:
            self.observe = self.of("").observe
        registry.register(self)

    def of(self, label: str) -> Tally:
        """The tally of one label's values."""
        return self._tallies.setdefault(label, Tally(self._bounds))

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """What Prometheus is told."""
        labels = [] if self._label is None else [self._label]
        family = HistogramMetricFamily(self._name, self._meaning, labels=labels)
        edges = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        for label, tally in list(self._tallies.items()):
            counts, total = tally.read()
            values = [label] if labels else []
            family.add_metric(values, list(zip(edges, counts, strict=True)), total)
        yield family
