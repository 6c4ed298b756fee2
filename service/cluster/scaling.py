"""How many replicas: as many as bring the predicted work in each one's queue below a target."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

QUEUE_SECONDS = "predicted_queue_seconds"

_SPARE = 0.5  # share of the target that is left after a replica less, so that it is not missed


class Context(Protocol):
    """What Ray tells an autoscaling policy, as far as this one reads it."""

    current_num_replicas: int
    capacity_adjusted_min_replicas: int
    capacity_adjusted_max_replicas: int

    @property
    def aggregated_metrics(self) -> Mapping[str, Mapping[Any, float]] | None:
        """Each figure that replicas report, by replica."""


class ByQueueSeconds:
    """Ray's autoscaling policy: adds replicas while queues are long, removes idle ones."""

    def __init__(self, target_seconds: float = 1.0) -> None:
        self._target = target_seconds

    def __call__(self, context: Context) -> tuple[int, dict[str, Any]]:
        """The number of replicas, and no state to keep."""
        queued = (context.aggregated_metrics or {}).get(QUEUE_SECONDS, {})
        wanted = replicas_for(queued.values(), context.current_num_replicas, self._target)
        low, high = context.capacity_adjusted_min_replicas, context.capacity_adjusted_max_replicas
        return max(low, min(high, wanted)), {}


def replicas_for(queued: Iterable[float], replicas: int, target: float) -> int:
    """Replicas for so many seconds of work in their queues, of which each may hold `target`."""
    work = sum(queued)
    if work > target * replicas:
        return math.ceil(work / target)
    fewer = replicas - 1
    return fewer if fewer > 0 and work < _SPARE * target * fewer else max(1, replicas)
