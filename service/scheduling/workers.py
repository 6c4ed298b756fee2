"""The two halves of the scheduler, for short and for long documents: their lanes and their work."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

from service.engines.base import Engine
from service.scheduling.policy import Policy
from service.scheduling.queue import Job, JobQueue

_SOON = 0.1  # seconds
_SLACK = 64  # entries of a queue that nobody waits for any more


class Lane:
    """A thread of a tier: how far below the others it stands, where it runs, what it does."""

    def __init__(
        self, tier: Tier, nice: int, core: int | None, engine: Engine, lock: threading.Lock
    ) -> None:
        self.tier, self.nice, self.core, self.engine = tier, nice, core, engine
        self.alarm = threading.Condition(lock)
        self.waits = False  # for work, and nobody has called it
        self.busy = False  # running something
        self.until = 0.0  # when that is predicted to end
        self.owed: list[tuple[Future[Any], Any]] = []  # results of its last run, not delivered yet
        self.grown: set[Engine] = set()  # engines that large runs have left memory in

    def deliver(self) -> None:
        """Hand over the results that it owes.

        Best done just before a run: whoever is woken by them can only go on when this thread lets
        go of the interpreter, which is then.
        """
        owed, self.owed = self.owed, []
        for future, result in owed:
            future.set_result(result)

    def shrink(self) -> None:
        """Give back the memory that its large runs have left in engines."""
        while self.grown:
            self.grown.pop().shrink()


class Tier:
    """A queue, the lanes that serve it, and the work it holds, waiting and running."""

    def __init__(self, policy: Policy) -> None:
        self.queue = JobQueue(policy.overtake, policy.list_delay, policy.bulk_yield)
        self.lanes: list[Lane] = []
        self.backlog = 0.0
        self.jobs = 0
        self._interactive: dict[Job, None] = {}  # in the order they came

    @property
    def oldest(self) -> Job | None:
        """The first that came of the jobs that are no bulk work."""
        return next(iter(self._interactive), None)

    @property
    def next(self) -> Job | None:
        """The job to run next: as they came while all is soon done, else the shortest first.

        In a short queue nothing is gained by passing, and whoever is passed waits twice as long.
        """
        return self.queue.head(in_order=self.backlog <= _SOON * len(self.lanes))

    def add(self, job: Job) -> None:
        """Queue a job."""
        self.queue.push(job)
        self.backlog += job.work
        self.jobs += 1
        if not job.ticket.bulk:
            self._interactive[job] = None

    def remove(self, job: Job) -> None:
        """Forget a job that is answered or dropped."""
        job.settled = True
        self.jobs -= 1
        self.backlog -= job.work
        self._interactive.pop(job, None)
        if len(self.queue) > 2 * self.jobs + _SLACK:
            self.queue.sweep()
