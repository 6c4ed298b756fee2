"""One request's fate, as it travels from the process that sent it to the record."""

from __future__ import annotations

from typing import Any, NamedTuple

#: What `error` says when no answer came in time; such a request took at least its time.
TIMED_OUT = "no answer in time"
REFUSED_CONNECTION = "connection refused"
NO_SOCKETS = "the load generator ran out of sockets"


class Sample(NamedTuple):
    """Seconds count from the warm-up's end (`due`) and from when the request was due."""

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
    """What a process of the load generator needed since the warm-up's end."""

    cpu_seconds: float
    seconds: float
    overslept: tuple[float, ...]


def from_rows(rows: list[list[Any]]) -> list[Sample]:
    """Samples as they come out of JSON."""
    return [Sample(*row) for row in rows]
