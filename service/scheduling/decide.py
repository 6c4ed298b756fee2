"""Every decision of the scheduler: what waits in which order, and what a worker runs next.

As in any scheduler, jobs are added, batches start and finish, and a job that nobody waits for any
more is dropped. Decisions are functions of the state and the time that change nothing:
`next_batch` when a worker has nothing to run, `worker_to_wake` when a job has come. Work goes to
the core where least is running; when a short document needs a long one's core, the operating
system takes it away at once, because workers for long documents have a lower thread priority.

No clock, lock, thread or metric is known here: the scheduler calls with its lock held, tests and
simulations call directly.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from service.scheduling.forecast import CostModel
from service.scheduling.jobs import Batch, Call, Inference, Job
from service.scheduling.policy import Policy

_SLACK = 64  # entries of a queue whose jobs have left it already
_LATEST = 512  # documents from which it is learnt which ones are short
_FEW = 32  # documents: from fewer it is not learnt
_RELEARN = 32  # documents
_ALIKE = 1.05  # documents at most so much longer than others count as equally long
_SCAN = 32  # waiting jobs that are considered for a batch
_BRIEF = 0.25  # share of a document's work: what else runs and ends within it does not count


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
        self.waiting: set[Job] = set()
        self.head: Job | None = None  # the next job to run
        self._heap: list[tuple[float, int, Job]] = []
        self._counter = itertools.count()

    def push(self, job: Job) -> None:
        """Add a job."""
        policy = self._policy
        due = job.caller.arrival + policy.list_delay * job.ahead
        if job.caller.bulk:
            due += policy.bulk_yield
        if isinstance(job, Inference):
            self._latest.append(job.tokens)
            self._since_learnt += 1
            if self._since_learnt >= _RELEARN:
                self._learn()
            if job.tokens > self._longest_short:
                due += policy.overtake
        heapq.heappush(self._heap, (due, next(self._counter), job))
        self.waiting.add(job)
        self.head = self._heap[0][2]

    def remove(self, job: Job) -> None:
        """Take a job out, if it is still there."""
        self.waiting.discard(job)
        heap = self._heap
        while heap and heap[0][2] not in self.waiting:
            heapq.heappop(heap)
        if len(heap) > 2 * len(self.waiting) + _SLACK:
            heap[:] = [entry for entry in heap if entry[2] in self.waiting]
            heapq.heapify(heap)
        self.head = heap[0][2] if heap else None

    def first(self, count: int) -> list[Job]:
        """Up to so many of the jobs that go first, in order; from a long queue some are missing.

        The beginning of a heap holds most of its smallest entries.
        """
        nearest = sorted(self._heap[: 2 * count])
        return [job for _, _, job in nearest if job in self.waiting][:count]

    def _learn(self) -> None:
        """Learn from the latest documents which ones are short."""
        latest = self._latest
        if len(latest) >= _FEW:
            share = self._policy.short_first_share
            place = min(len(latest) - 1, int(share * len(latest)))
            self._longest_short = _ALIKE * sorted(latest)[place] if share else math.inf
            self._since_learnt = 0


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
        self._find_border()

    @property
    def backlog(self) -> float:
        """Predicted seconds of one core that wait or run."""
        return self.short.backlog + self.long.backlog

    @property
    def depth(self) -> int:
        """Jobs that wait or run."""
        return len(self._jobs)

    def _find_border(self) -> None:
        """Find the work from which a document is long, for the cost model's present fit."""
        self._fitted = self.cost.coefficients
        unknown = math.isinf(self.long_tokens)
        border = self.policy.long_work if unknown else self.cost.seconds(self.long_tokens)
        #: Predicted seconds from which a document belongs to the long ones.
        self.border = border if self.policy.long_workers else math.inf

    def add(self, job: Job) -> PriorityClass:
        """Queue a job; the class that it joins."""
        # A call holds the interpreter for long stretches: on a worker of low priority, which the
        # system may stop at any moment, it would hold up the event loop and every other worker.
        is_call = isinstance(job, Call)
        serves = self.short if is_call or job.work < self.border else self.long
        counted = self._jobs[job] = _Counted(serves, [(serves, job.work)])
        if isinstance(job, Call):
            follows = self.short if job.follows < self.border else self.long
            counted.shares.append((follows, job.follows))
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
        if self._fitted is not self.cost.coefficients:
            self._find_border()

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


def next_batch(state: State, worker: WorkerState, now: float) -> Batch | None:
    """What a worker should run now; None when it should wait."""
    queue = worker.serves.queue
    head, running = queue.head, state.tokens_running
    if head is None:
        return None
    if running and running + head.tokens > state.policy.max_running_tokens:
        return None  # the memory of the runs under way leaves no room; one alone always runs
    if len(queue.waiting) == 1 or head.tokens > state.policy.batch_below:
        batch = Batch((head,), head.tokens, head.work)
    else:
        jobs = batch_with(state, worker.serves, head)
        tokens, work = (sum(each) for each in zip(*((j.tokens, j.work) for j in jobs), strict=True))
        batch = Batch(jobs, tokens, work)
    if state.can_use_all_cores and worker.serves is state.long:
        batch = replace(batch, all_cores=may_use_all_cores(state, batch, now))
    return batch


def worker_to_wake(state: State, serves: PriorityClass) -> WorkerState | None:
    """The worker that a new job should go to: of those that wait, on the core with least to do."""
    chosen: WorkerState | None = None
    for worker in state.workers:
        if worker.waiting and worker.serves is serves:
            least = None if chosen is None else state.running_on[chosen.core]
            if least is None or state.running_on[worker.core] < least:
                chosen = worker
    return chosen


def batch_with(state: State, serves: PriorityClass, head: Job) -> tuple[Job, ...]:
    """The job with those of about its length that had better share its run.

    No more than this worker's share of those that wait: the others want work, too.
    """
    if not isinstance(head, Inference):
        return (head,)
    policy = state.policy
    candidates = [
        job
        for job in serves.queue.first(_SCAN)
        if isinstance(job, Inference)
        and job is not head
        and job.tokens <= policy.batch_below
        and job.contributions == head.contributions
    ]
    most = min(policy.max_batch_size, -(-(1 + len(candidates)) // policy.workers))
    batch: list[Job] = [head]
    longest = head.tokens
    for job in candidates:
        if len(batch) >= most:
            break
        longest_with = max(longest, job.tokens)
        fits = longest_with * (len(batch) + 1) <= policy.max_batch_tokens
        if fits and batching_pays(state, [*batch, job]):
            batch.append(job)
            longest = longest_with
    return tuple(batch)


def batching_pays(state: State, batch: Sequence[Job]) -> bool:
    """Whether sharing a run saves at least twice what padding costs."""
    longest = state.cost.seconds(max(job.tokens for job in batch))
    padding = sum(longest - state.cost.seconds(job.tokens) for job in batch)
    return 2 * padding <= state.policy.batch_saving * (len(batch) - 1)


def may_use_all_cores(state: State, batch: Batch, now: float) -> bool:
    """Whether a long document may use every core: it is alone, or is about to be."""
    long, short = state.long, state.short
    brief = _BRIEF * batch.work
    others = _running(state, long)
    lasting = sum(other.until > now + brief for other in _running(state, short))
    alone = len(long.queue.waiting) == len(batch.jobs)
    alone = alone and all(other.until <= now + brief for other in others)
    idle = short.backlog <= brief * state.policy.workers
    return alone and idle and 2 * (1 + lasting) <= state.policy.workers


def _running(state: State, serves: PriorityClass) -> list[WorkerState]:
    return [worker for worker in state.workers if worker.serves is serves and worker.batch]
