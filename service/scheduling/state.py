"""What waits and what runs: the state that decisions are made from.

Three methods change it, as in any scheduler: a job is added, a batch is started, a batch is
finished; and a job that nobody waits for any more is dropped. It knows no clock, lock or thread:
the scheduler calls it with its lock held, tests and simulations call it directly.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from service.scheduling.cost import CostModel
from service.scheduling.policy import Policy
from service.scheduling.queue import Call, Inference, Job, JobQueue


@dataclass(frozen=True)
class Batch:
    """Jobs to run together. `all_cores`: with the engine that uses every core."""

    jobs: tuple[Job, ...]
    all_cores: bool = False

    @property
    def tokens(self) -> int:
        """Tokens that the engine must hold for it, without padding."""
        return sum(job.tokens for job in self.jobs)

    @property
    def work(self) -> float:
        """Predicted seconds of one core."""
        return sum(job.work for job in self.jobs)


class PriorityClass:
    """Short or long documents: those that wait, and the predicted work of all unfinished ones."""

    def __init__(self, policy: Policy, workers: int) -> None:
        self.workers = workers
        self.queue = JobQueue(policy)
        self.backlog = 0.0  # seconds of one core


@dataclass(eq=False)
class WorkerState:
    """A worker as decisions see it: whom it serves, on which core, and what it runs until when."""

    number: int
    serves: PriorityClass
    core: int | None = None
    batch: Batch | None = None
    until: float = 0.0  # when the batch is predicted to end
    waiting: bool = False  # for work, and not called for any yet


@dataclass(eq=False)
class _Counted:
    """Where a job's predicted work is counted: its own, and of what follows it."""

    serves: PriorityClass
    shares: list[tuple[PriorityClass, float]] = field(default_factory=list)


class State:
    """All jobs that wait or run, and the workers."""

    def __init__(self, policy: Policy, cost: CostModel) -> None:
        self.policy, self.cost = policy, cost
        self.short = PriorityClass(policy, policy.workers)
        self.long = PriorityClass(policy, policy.long_workers)
        cores: tuple[int | None, ...] = policy.cores or (None,)
        places = [
            (serves, cores[index % len(cores)])
            for serves in (self.short, self.long)
            for index in range(serves.workers)
        ]
        self.workers = [WorkerState(number, *place) for number, place in enumerate(places)]
        self.tokens_running = 0
        self.can_use_all_cores = False  # whether there is an engine that uses every core
        self.running_on: Counter[int | None] = Counter()  # batches by core
        # The border between the classes is a length, found once: predictions change with every
        # fit, and equal documents in both classes would take the cores' caches from each other.
        self.long_tokens = cost.tokens(policy.long_work)
        self._jobs: dict[Job, _Counted] = {}

    @property
    def backlog(self) -> float:
        """Predicted seconds of one core that wait or run."""
        return self.short.backlog + self.long.backlog

    @property
    def depth(self) -> int:
        """Jobs that wait or run."""
        return len(self._jobs)

    def is_long(self, work: float) -> bool:
        """Whether a document of so much predicted work belongs to the long ones."""
        unknown = math.isinf(self.long_tokens)
        border = self.policy.long_work if unknown else self.cost.seconds(self.long_tokens)
        return self.policy.long_workers > 0 and work >= border

    def class_of(self, work: float) -> PriorityClass:
        """The class of a document of so much predicted work."""
        return self.long if self.is_long(work) else self.short

    def add(self, job: Job) -> PriorityClass:
        """Queue a job; the class that it joins."""
        # A call holds the interpreter for long stretches: on a worker of low priority, which the
        # system may stop at any moment, it would hold up the event loop and every other worker.
        serves = self.class_of(job.work) if isinstance(job, Inference) else self.short
        counted = self._jobs[job] = _Counted(serves, [(serves, job.work)])
        if isinstance(job, Call):
            counted.shares.append((self.class_of(job.follows), job.follows))
        for share, work in counted.shares:
            share.backlog += work
        serves.queue.push(job)
        return serves

    def start(self, worker: WorkerState, batch: Batch, now: float) -> None:
        """Take a batch's jobs out of the queue: the worker runs them from now on."""
        for job in batch.jobs:
            worker.serves.queue.remove(job)
        worker.batch, worker.until = batch, now + batch.work
        self.tokens_running += batch.tokens
        self.running_on[worker.core] += 1

    def finish(self, worker: WorkerState, done: Sequence[Job]) -> None:
        """The worker's batch has run, and those of its jobs are answered."""
        batch = worker.batch
        if batch is None:
            return
        worker.batch = None
        self.tokens_running -= batch.tokens
        self.running_on[worker.core] -= 1
        for job in done:
            self.drop(job)

    def drop(self, job: Job) -> None:
        """Forget a job that is answered, or that nobody waits for."""
        counted = self._jobs.pop(job, None)
        if counted is None:
            return
        counted.serves.queue.remove(job)
        for share, work in counted.shares:
            share.backlog -= work
        if not self._jobs:  # what is left is rounding
            self.short.backlog = self.long.backlog = 0.0
