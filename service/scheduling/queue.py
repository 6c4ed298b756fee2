"""What the scheduler runs, and the queue that orders it.

A ticket stands for one request. Its jobs are either steps (a call that runs on a worker, such as
tokenizing) or pieces (token ids for the engine, which may share a batch with others).
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from service.engines.base import Floats, Ids
from service.scheduling.policy import Policy

_SLACK = 64  # entries of a queue whose jobs have left it already
_USUAL = 1024  # tokens, before anything is learnt
_LATEST = 128  # documents from which the usual length is learnt
_FEW = 32  # documents: from fewer it is not learnt
_RELEARN = 16  # documents
_MOST = 0.7  # share of documents that are no longer than usual: the median, and some room above it


@dataclass(frozen=True)
class Ticket:
    """One request: when it came, and whether it is bulk work."""

    arrival: float
    bulk: bool = False


@dataclass(eq=False)
class Job:
    """One unit that a worker runs without a break; `future` gets its result.

    work     predicted seconds of one core
    ahead    work that the same ticket asked for before it: documents of one request queue one
             behind the other, so that a long list does not hold up another caller's single one
    future   cancel it to drop the job while it waits
    """

    ticket: Ticket
    work: float
    ahead: float
    future: Future[Any] = field(default_factory=Future, init=False)
    submitted: float = field(default=0.0, init=False)
    waited: float = field(default=0.0, init=False)

    @property
    def tokens(self) -> int:
        """Tokens that the engine must hold for it."""
        return 0


@dataclass(eq=False)
class Step(Job):
    """A call to run on a worker; the future gets what it returns.

    When that is a piece, the piece is queued in the step's place, and the future gets the
    piece's result: a document is tokenized and then run without a detour. `follows` is that
    piece's predicted work.
    """

    call: Callable[[], Any]
    follows: float = 0.0


@dataclass(eq=False)
class Piece(Job):
    """Token ids to run through the engine; the future gets what `finish` makes of the output.

    `finish` takes the piece's logits (labels,) and contributions (n, labels) or None, and runs
    on the worker, so that the event loop never works on arrays.
    """

    ids: Ids  # (n,)
    contributions: bool
    finish: Callable[[Floats, Floats | None], Any]

    @property
    def tokens(self) -> int:
        """Its length."""
        return len(self.ids)


_Heap = list[tuple[float, int, Job]]


class JobQueue:
    """Waiting jobs of one priority class, in two orders.

    In order of arrival: a request's further documents count as if each came `list_delay` times
    the work before it later, and bulk work as if it came `bulk_yield` seconds later.

    Shortest first with ageing: by that time plus `overtake * min(1, tokens / usual)`, where
    `usual` is the length that most of the latest documents stay below. Documents above it keep
    their order of arrival among each other; a step, which has no tokens yet, is never passed.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._usual = _USUAL
        self._latest: deque[int] = deque(maxlen=_LATEST)  # tokens of the latest documents
        self._since_learnt = 0
        self._waiting: set[Job] = set()
        self._by_arrival: _Heap = []
        self._by_due: _Heap = []
        self._counter = itertools.count()

    def push(self, job: Job) -> None:
        """Add a job."""
        if isinstance(job, Piece):
            self._learn_usual(job.tokens)
        came = job.ticket.arrival + self._policy.list_delay * job.ahead
        if job.ticket.bulk:
            came += self._policy.bulk_yield
        due = came + self._policy.overtake * min(1.0, job.tokens / self._usual)
        number = next(self._counter)
        heapq.heappush(self._by_arrival, (came, number, job))
        heapq.heappush(self._by_due, (due, number, job))
        self._waiting.add(job)

    def remove(self, job: Job) -> None:
        """Take a job out, if it is still there."""
        self._waiting.discard(job)
        for heap in (self._by_arrival, self._by_due):
            while heap and heap[0][2] not in self._waiting:
                heapq.heappop(heap)
            if len(heap) > 2 * len(self._waiting) + _SLACK:
                heap[:] = [entry for entry in heap if entry[2] in self._waiting]
                heapq.heapify(heap)

    def head(self, *, in_order: bool = False) -> Job | None:
        """The next job to run."""
        heap = self._by_arrival if in_order else self._by_due
        return heap[0][2] if heap else None

    def first(self, count: int) -> list[Job]:
        """Up to so many of the jobs that go first, in order; from a long queue some are missing.

        The beginning of a heap holds most of its smallest entries.
        """
        nearest = sorted(self._by_due[: 2 * count])
        return [job for _, _, job in nearest if job in self._waiting][:count]

    def __iter__(self) -> Iterator[Job]:
        return iter(self._waiting)

    def __len__(self) -> int:
        return len(self._waiting)

    def _learn_usual(self, tokens: int) -> None:
        latest = self._latest
        latest.append(tokens)
        self._since_learnt += 1
        if self._since_learnt >= _RELEARN and len(latest) >= _FEW:
            self._usual = sorted(latest)[int(_MOST * len(latest))]
            self._since_learnt = 0
