"""How many replicas the predicted work in their queues calls for."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from service.cluster.scaling import QUEUE_SECONDS, ByQueueSeconds, replicas_for


@pytest.mark.parametrize(
    ("queued", "replicas", "wanted"),
    [
        ([0.0], 1, 1),
        ([0.9], 1, 1),
        ([1.1], 1, 2),
        ([3.0, 3.0], 2, 6),
        ([0.0, 0.0], 2, 1),
        ([0.4, 0.4], 2, 2),  # one alone would soon be over its target again
        ([0.2, 0.2], 2, 1),
        ([], 3, 2),
    ],
)
def test_replicas_follow_the_queued_work(queued: list[float], replicas: int, wanted: int) -> None:
    assert replicas_for(queued, replicas, 1.0) == wanted


def test_a_steady_load_settles() -> None:
    """Work that arrives evenly: no number of replicas leads to another and back."""
    for work in (0.3, 0.7, 1.0, 1.7, 2.5, 4.9):
        replicas, seen = 1, []
        for _ in range(20):
            replicas = replicas_for([work / replicas] * replicas, replicas, 1.0)
            seen.append(replicas)
        assert len(set(seen[5:])) == 1, (work, seen)


@dataclass
class _Context:
    aggregated_metrics: dict[str, dict[str, float]] | None
    current_num_replicas: int = 2
    capacity_adjusted_min_replicas: int = 2
    capacity_adjusted_max_replicas: int = 4
    config: dict[str, float] = field(default_factory=dict)


@pytest.mark.parametrize(
    ("metrics", "wanted"),
    [
        (None, 2),
        ({}, 2),
        ({QUEUE_SECONDS: {"a": 0.0, "b": 0.0}}, 2),
        ({QUEUE_SECONDS: {"a": 3.0, "b": 0.0}}, 3),
        ({QUEUE_SECONDS: {"a": 30.0, "b": 30.0}}, 4),
    ],
)
def test_the_policy_keeps_within_bounds(
    metrics: dict[str, dict[str, float]] | None, wanted: int
) -> None:
    assert ByQueueSeconds(1.0)(_Context(metrics)) == (wanted, {})
