"""What the scheduler runs: tickets, jobs, and the queue that orders them.

A ticket stands for one request. Its jobs are either steps (a call that runs on a lane, such as
tokenizing) or pieces (token ids for the engine, which may share a run with others).
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from service.engines.base import Floats, Ids


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

    @property
    def hurries(self) -> bool:
        """Whether nothing newer passes it, however short."""
        return False


@dataclass(eq=False)
class Step(Job):
    """A call to run on a lane; the future gets what it returns.

    When that is a piece, the piece is queued in the step's place, and the future gets the
    piece's result: a document is tokenized and then run without a detour. `follows` is that
    piece's predicted work. A piece that `waits_elsewhere` has another queue before it, so its
    step is not passed in this one.
    """

    call: Callable[[], Any]
    follows: float = 0.0
    waits_elsewhere: bool = False

    @property
    def hurries(self) -> bool:
        """Whether nothing newer passes it, however short."""
        return self.waits_elsewhere


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


class JobQueue:
    """Waiting jobs of one tier, shortest first, aged so that none starves.

    A job's rank is its arrival plus `patience` times its work, but at most `overtake` seconds:
    only those pass it that arrive that much later. A request's further documents rank behind
    its earlier ones in the same way, and bulk work lets everything pass that arrives within
    `bulk_yield` seconds.
    """

    def __init__(self, patience: float, overtake: float, bulk_yield: float) -> None:
        self.patience = patience
        self.overtake = overtake
        self.bulk_yield = bulk_yield
        self._heap: list[tuple[float, int, Job]] = []
        self._counter = itertools.count()

    def push(self, job: Job) -> None:
        """Add a job."""
        rank = job.ticket.arrival
        if not job.hurries:
            rank += min(self.patience * job.work, self.overtake)
        rank += self.patience * job.ahead
        if job.ticket.bulk:
            rank += self.bulk_yield
        heapq.heappush(self._heap, (rank, next(self._counter), job))

    def head(self) -> Job | None:
        """The next job to run, or None; those that nobody waits for any more are dropped."""
        while self._heap and _gone(self._heap[0][2]):
            heapq.heappop(self._heap)
        return self._heap[0][2] if self._heap else None

    def take(self, job: Job) -> None:
        """Take a job out; it leaves the heap when it comes to the top."""
        job.taken = True

    def waiting(self) -> Iterator[Job]:
        """Jobs that still wait, the next one first and the others in no strict order."""
        return (job for _, _, job in self._heap if not _gone(job))

    def sweep(self) -> None:
        """Forget what is gone, so that callers who come and leave cannot fill the memory."""
        self._heap = [entry for entry in self._heap if not _gone(entry[2])]
        heapq.heapify(self._heap)

    def __len__(self) -> int:
        return len(self._heap)


def _gone(job: Job) -> bool:
    return job.taken or job.future.cancelled()
