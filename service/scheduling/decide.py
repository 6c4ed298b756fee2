"""Every decision of the scheduler, as functions of its state and the time: nothing is changed here.

A worker asks `next_batch` whenever it has nothing to run. Work goes to the core where least is
running (`worker_to_wake`); when a short document needs a long one's core, the operating system
takes it away at once, because workers for long documents have a lower thread priority.
"""

from __future__ import annotations

from collections.abc import Sequence

from service.scheduling.queue import Inference, Job
from service.scheduling.state import Batch, PriorityClass, State, WorkerState

_SCAN = 32  # waiting jobs that are considered for a batch
_BRIEF = 0.25  # share of a document's work: what else runs and ends within it does not count


def next_batch(state: State, worker: WorkerState, now: float) -> Batch | None:
    """What a worker should run now; None when it should wait."""
    head = worker.serves.queue.head
    if head is None or not has_room(state, head):
        return None
    jobs = batch_with(state, worker.serves, head)
    return Batch(jobs, may_use_all_cores(state, worker, jobs, now))


def worker_to_wake(state: State, serves: PriorityClass) -> WorkerState | None:
    """The worker that a new job should go to: of those that wait, on the core with least to do."""
    waiting = [worker for worker in state.workers if worker.serves is serves and worker.waiting]
    return min(waiting, key=lambda worker: state.running_on[worker.core], default=None)


def has_room(state: State, job: Job) -> bool:
    """Whether the memory of the runs under way leaves room for one more; one alone always runs."""
    running = state.tokens_running
    return running == 0 or running + job.tokens <= state.policy.max_running_tokens


def batch_with(state: State, serves: PriorityClass, head: Job) -> tuple[Job, ...]:
    """The job with those of about its length that had better share its run.

    No more than this worker's share of those that wait: the others want work, too.
    """
    policy = state.policy
    if (
        not isinstance(head, Inference)
        or head.tokens > policy.batch_below
        or len(serves.queue) == 1
    ):
        return (head,)
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


def may_use_all_cores(state: State, worker: WorkerState, jobs: Sequence[Job], now: float) -> bool:
    """Whether a long document may use every core: it is alone, or is about to be."""
    long, short = state.long, state.short
    if not state.can_use_all_cores or worker.serves is not long:
        return False
    brief = _BRIEF * jobs[0].work
    others = _running(state, long)
    lasting = sum(other.until > now + brief for other in _running(state, short))
    alone = len(long.queue) == len(jobs) and all(other.until <= now + brief for other in others)
    idle = short.backlog <= brief * state.policy.workers
    return alone and idle and 2 * (1 + lasting) <= state.policy.workers


def _running(state: State, serves: PriorityClass) -> list[WorkerState]:
    return [worker for worker in state.workers if worker.serves is serves and worker.batch]
