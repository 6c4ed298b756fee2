"""One request's timing and result, from the process that sent it to the record."""

from __future__ import annotations

import math
from collections.abc import Sequence
from http import HTTPStatus
from typing import NamedTuple

from benchmarks.records import Requests

#: The error of a request that got no answer in time; its seconds count as waited.
TIMED_OUT = "no answer in time"
REFUSED_CONNECTION = "connection refused"
NO_SOCKETS = "the load generator ran out of sockets"


class Sample(NamedTuple):
    """A request; `due` counts from the end of the warm-up, `seconds` and `late` from `due`."""

    due: float
    seconds: float
    late: float
    tokens: int
    documents: int
    status: int
    kind: str
    error: str

    @property
    def refused(self) -> bool:
        """Whether the service said that it is full."""
        return self.status == 429

    @property
    def counts(self) -> bool:
        """Whether its seconds belong in a percentile: answered, or given up after waiting."""
        return not self.error or self.error == TIMED_OUT


class Usage(NamedTuple):
    """Processor time that a process of the load generator used since the end of the warm-up."""

    cpu_seconds: float
    seconds: float
    overslept: tuple[float, ...]


def name_status(status: int) -> str:
    """A status with its phrase: `429 Too Many Requests`."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def to_requests(samples: Sequence[Sample]) -> Requests:
    """Samples as the raw columns that the store keeps."""
    return Requests(
        due=tuple(s.due for s in samples),
        seconds=tuple(s.seconds for s in samples),
        tokens=tuple(s.tokens for s in samples),
        status=tuple(s.status for s in samples),
        request=tuple(s.kind for s in samples),
        documents=tuple(s.documents for s in samples),
        late=tuple(s.late for s in samples),
        error=tuple(s.error for s in samples),
    )


def to_samples(raw: Requests) -> list[Sample]:
    """The samples of raw columns."""
    return [
        Sample(*row)
        for row in zip(
            raw.due, raw.seconds, raw.late, raw.tokens, raw.documents, raw.status, raw.request,
            raw.error, strict=True,
        )
    ]  # fmt: skip


def percentile_of_all(samples: Sequence[Sample], share: float) -> float:
    """A percentile of the seconds of all requests, a failed one counting as infinite.

    A server that drops what it cannot do must not look fast.
    """
    ordered = sorted(math.inf if each.error else each.seconds for each in samples)
    if not ordered:
        return math.nan
    return ordered[max(0, math.ceil(share / 100 * len(ordered)) - 1)]
