"""Distributions: what Prometheus is told is what its own library's histogram would tell."""

from __future__ import annotations

import threading

import numpy as np
from prometheus_client import CollectorRegistry, Histogram, disable_created_metrics
from prometheus_client.exposition import generate_latest

from service.distributions import Distribution

BOUNDS = (1, 2, 8.5)


def lines(registry: CollectorRegistry) -> list[str]:
    return generate_latest(registry).decode().splitlines()


def test_the_text_is_the_librarys_own() -> None:
    disable_created_metrics()  # type: ignore[no-untyped-call]
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    values = [*np.random.default_rng(0).integers(0, 12, 3000).tolist(), 1.0, 8.5, 8.6]
    mine = Distribution("sizes", "Sizes", BOUNDS, ours)
    library = Histogram("sizes", "Sizes", buckets=BOUNDS, registry=theirs)
    assert lines(ours) == lines(theirs), "while nothing is observed"
    for value in values:
        mine.observe(value)
        library.observe(value)
    assert lines(ours) == lines(theirs)
    assert lines(ours) == lines(theirs), "asked twice"


def test_the_text_of_labels_is_the_librarys_own() -> None:
    disable_created_metrics()  # type: ignore[no-untyped-call]
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    mine = Distribution("sizes", "Sizes", BOUNDS, ours, label="route")
    library = Histogram("sizes", "Sizes", ["route"], buckets=BOUNDS, registry=theirs)
    for route, value in (("/a", 0.5), ("/b", 3.0), ("/a", 9.0)):
        mine.of(route).observe(value)
        library.labels(route).observe(value)
    assert lines(ours) == lines(theirs)


def test_nothing_is_lost_between_threads() -> None:
    registry = CollectorRegistry()
    mine = Distribution("sizes", "Sizes", BOUNDS, registry)

    def observe() -> None:
        for _ in range(5000):
            mine.observe(1.5)

    threads = [threading.Thread(target=observe) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "sizes_count 20000.0" in lines(registry)
    assert 'sizes_bucket{le="1.0"} 0.0' in lines(registry)
