"""What the scheduler runs, and the queue that orders it.

Jobs are either calls (a function to run on a worker, such as tokenizing) or inferences (token ids
for the engine, which may share a batch with others).
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from service.engines.base import Floats, Ids
from service.scheduling.policy import Policy

_SLACK = 64  # entries of a queue whose jobs have left it already
_LATEST = 512  # documents from which it is learnt which ones are short
_FEW = 32  # documents: from fewer it is not learnt
_RELEARN = 32  # documents
_ALIKE = 1.05  # documents at most so much longer than others count as equally long


@dataclass(frozen=True)
class Caller:
    """A request that asks for jobs: when it came, and whether it is bulk work."""

    arrival: float
    bulk: bool = False


@dataclass(eq=False)
class Job:
    """One unit that a worker runs without a break; `future` gets its result.

    work     predicted seconds of one core
    ahead    work that the same caller asked for before it: documents of one request queue one
             behind the other, so that a long list does not hold up another caller's single one
    future   cancel it to drop the job while it waits
    """

    caller: Caller
    work: float
    ahead: float
    future: Future[Any] = field(default_factory=Future, init=False)
    submitted: float = field(default=0.0, init=False)

    @property
    def tokens(self) -> int:
        """Tokens that the engine must hold for it."""
        return 0


@dataclass(eq=False)
class Call(Job):
    """A function to run on a worker; the future gets what it returns.

    `follows` is the predicted work of the inferences that it will submit: it counts as backlog
    until the call has ended.
    """

    function: Callable[[], Any]
    follows: float = 0.0


@dataclass(eq=False)
class Inference(Job):
    """Token ids to run through the engine; the future gets what `finish` makes of the output.

    `finish` takes the document's logits (labels,) and contributions (n, labels) or None, and runs
    on the worker, so that the event loop never works on arrays.
    """

    ids: Ids  # (n,)
    contributions: bool
    finish: Callable[[Floats, Floats | None], Any]

    @property
    def tokens(self) -> int:
        """Its length."""
        return len(self.ids)


class JobQueue:
    """Waiting jobs of one priority class, by the time at which each is due.

        due = arrival + list_delay * ahead + (bulk_yield if bulk) + (overtake if long)

    A document is long when it has more tokens than `short_first_share` of the latest documents:
    the shorter ones go first, within each half the order is that of arrival, and after `overtake`
    seconds nothing passes any more. So equal documents keep their order, and the longer half shares
    what the shorter half saves: its documents all wait about equally long. Passing by length within
    a half would win the median little and lose the tail much.

    A call has no tokens yet and is never passed.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._latest: deque[int] = deque(maxlen=_LATEST)  # tokens of the latest documents
        self._since_learnt = 0
        self._longest_short = math.inf  # tokens
        self._waiting: set[Job] = set()
        self._heap: list[tuple[float, int, Job]] = []
        self._counter = itertools.count()

    def push(self, job: Job) -> None:
        """Add a job."""
        if isinstance(job, Inference):
            self._learn(job.tokens)
        heapq.heappush(self._heap, (self.due(job), next(self._counter), job))
        self._waiting.add(job)

    def due(self, job: Job) -> float:
        """The time by which jobs are ordered."""
        policy, caller = self._policy, job.caller
        due = caller.arrival + policy.list_delay * job.ahead
        if caller.bulk:
            due += policy.bulk_yield
        if job.tokens > self._longest_short:
            due += policy.overtake
        return due

    def remove(self, job: Job) -> None:
        """Take a job out, if it is still there."""
        self._waiting.discard(job)
        heap = self._heap
        while heap and heap[0][2] not in self._waiting:
            heapq.heappop(heap)
        if len(heap) > 2 * len(self._waiting) + _SLACK:
            heap[:] = [entry for entry in heap if entry[2] in self._waiting]
            heapq.heapify(heap)

    @property
    def head(self) -> Job | None:
        """The next job to run."""
        return self._heap[0][2] if self._heap else None

    def first(self, count: int) -> list[Job]:
        """Up to so many of the jobs that go first, in order; from a long queue some are missing.

        The beginning of a heap holds most of its smallest entries.
        """
        nearest = sorted(self._heap[: 2 * count])
        return [job for _, _, job in nearest if job in self._waiting][:count]

    def __iter__(self) -> Iterator[Job]:
        return iter(self._waiting)

    def __len__(self) -> int:
        return len(self._waiting)

    def _learn(self, tokens: int) -> None:
        latest = self._latest
        latest.append(tokens)
        self._since_learnt += 1
        if self._since_learnt >= _RELEARN and len(latest) >= _FEW:
            share = self._policy.short_first_share
            place = min(len(latest) - 1, int(share * len(latest)))
            self._longest_short = _ALIKE * sorted(latest)[place] if share else math.inf
            self._since_learnt = 0
