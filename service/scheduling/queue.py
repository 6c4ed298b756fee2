"""What the scheduler runs: tickets, jobs, and the queue that orders them.

A ticket stands for one request. Its jobs are either steps (a call that runs on a lane, such as
tokenizing) or pieces (token ids for the engine, which may share a run with others).
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from service.engines.base import Floats, Ids

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
    """One unit that a lane runs without a break; `future` gets its result.

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
    taken: bool = field(default=False, init=False)
    settled: bool = field(default=False, init=False)

    @property
    def tokens(self) -> int:
        """Tokens that the engine must hold for it."""
        return 0


@dataclass(eq=False)
class Step(Job):
    """A call to run on a lane; the future gets what it returns.

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
    on the lane, so that the event loop never works on arrays.
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
    """Waiting jobs of one tier, in two orders: as they came, and shortest first.

    As they came: a request's further documents count as if each came `list_delay` times the work
    before it later, and bulk work lets everything pass that arrives within `bulk_yield` seconds.

    Shortest first, aged so that none starves: to that a time is added in which newer ones may
    pass, `overtake` seconds for what is longer than usual, less in proportion for shorter ones. So
    the smaller documents hardly wait, and the larger ones share what that costs, first come,
    first served: were they passed the longer the larger they are, the largest would pay for all.
    Tokens decide, not predicted work, which varies a little: equal documents keep their order.
    Steps have no tokens yet, and are not passed.
    """

    def __init__(self, overtake: float, list_delay: float, bulk_yield: float) -> None:
        self.overtake = overtake
        self.list_delay = list_delay
        self.bulk_yield = bulk_yield
        self._usual = _USUAL  # tokens that most of the latest documents stay below
        self._latest: deque[int] = deque(maxlen=_LATEST)  # their tokens
        self._since_learnt = 0
        self._as_they_came: _Heap = []
        self._shortest_first: _Heap = []
        self._counter = itertools.count()

    def push(self, job: Job) -> None:
        """Add a job."""
        if isinstance(job, Piece):
            self._learn_usual(job.tokens)
        came = job.ticket.arrival + self.list_delay * job.ahead
        if job.ticket.bulk:
            came += self.bulk_yield
        passed = self.overtake * min(1.0, job.tokens / self._usual)
        number = next(self._counter)
        heapq.heappush(self._as_they_came, (came, number, job))
        heapq.heappush(self._shortest_first, (came + passed, number, job))

    def head(self, *, in_order: bool) -> Job | None:
        """The next job to run, or None; those that nobody waits for any more are dropped."""
        for heap in (self._as_they_came, self._shortest_first):
            while heap and _gone(heap[0][2]):
                heapq.heappop(heap)
        heap = self._as_they_came if in_order else self._shortest_first
        return heap[0][2] if heap else None

    def take(self, job: Job) -> None:
        """Take a job out; it leaves the heaps when it comes to their top."""
        job.taken = True

    def waiting(self) -> Iterator[Job]:
        """All jobs that still wait, in no strict order."""
        return (job for _, _, job in self._shortest_first if not _gone(job))

    def next_ones(self, count: int) -> list[Job]:
        """Up to so many of the jobs that go first, in order; from a long queue some are missing.

        The beginning of a heap holds most of its smallest entries.
        """
        nearest = sorted(self._shortest_first[: 2 * count])
        return [job for _, _, job in nearest if not _gone(job)][:count]

    def sweep(self) -> None:
        """Forget what is gone, so that callers who come and leave cannot fill the memory."""
        for heap in (self._as_they_came, self._shortest_first):
            heap[:] = [entry for entry in heap if not _gone(entry[2])]
            heapq.heapify(heap)

    def __len__(self) -> int:
        return max(len(self._as_they_came), len(self._shortest_first))

    def _learn_usual(self, tokens: int) -> None:
        latest = self._latest
        latest.append(tokens)
        self._since_learnt += 1
        if self._since_learnt >= _RELEARN and len(latest) >= _FEW:
            self._usual = sorted(latest)[int(_MOST * len(latest))]
            self._since_learnt = 0


def _gone(job: Job) -> bool:
    return job.taken or job.future.cancelled()


def batch_of(group: Sequence[Piece]) -> Ids:
    """The pieces' ids (batch, n), padded with zeros to the longest."""
    if len(group) == 1:
        return group[0].ids[None]
    ids = np.zeros((len(group), max(piece.tokens for piece in group)), dtype=np.int64)
    for row, piece in zip(ids, group, strict=True):
        row[: piece.tokens] = piece.ids
    return ids
