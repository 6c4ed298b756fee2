"""The scheduler's decisions under a simulated load: which order serves the median and the tail.

Runs `service.scheduling.decide` and `state` as the service does, without threads, engine or clock:
two cores, the cost of documents measured for `elife-nystromformer` on an AMD EPYC, and callers who
send their next document when one is answered. `python -m benchmarks.simulation` prints the table of
`docs/design/order.md`; it takes a few seconds and no quiet machine.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.documents.lengths import LogNormal
from benchmarks.markdown import milliseconds, table
from benchmarks.records import percentile
from service.scheduling.decide import JobQueue, State, WorkerState, next_batch
from service.scheduling.forecast import CostModel
from service.scheduling.jobs import Caller, Inference, Job
from service.scheduling.policy import Policy

_CORES = (0, 1)
_CONSTANT, _PER_TOKEN, _PER_SQUARE = 6e-4, 5.4e-6, 8.9e-11  # seconds of one core
_AROUND = 3.5e-4  # seconds for a document's request, tokens and answer
_TURN = 2e-4  # seconds from an answer to the caller's next request
_LEARNT_FROM = (32, 128, 512, 2048)
_NICE_STEP = 1.25

POLICY = Policy(
    workers=2,
    long_workers=2,
    cores=_CORES,
    max_batch_tokens=1024,
    batch_below=512,
    batch_saving=_CONSTANT,
)


def seconds(tokens: int) -> float:
    """Seconds of one core for one document."""
    return _CONSTANT + _PER_TOKEN * tokens + _PER_SQUARE * tokens * tokens


@dataclass(frozen=True)
class Answer:
    """A document's length, and the seconds from its arrival to its answer."""

    tokens: int
    seconds: float


@dataclass
class _Running:
    """What is left of a worker's batch, and the share of its core that it gets."""

    left: float
    share: float = 1.0


class Simulation:
    """Two cores and the callers of a closed loop, from event to event."""

    def __init__(self, policy: Policy, queue: Callable[[Policy], JobQueue] = JobQueue) -> None:
        self.cost = CostModel((n, seconds(n)) for n in _LEARNT_FROM)
        self.state = State(policy, self.cost)
        self.state.short.queue, self.state.long.queue = queue(policy), queue(policy)
        self._weight = _NICE_STEP**-policy.long_niceness
        self._running: dict[WorkerState, _Running] = {}
        self._arrivals: list[tuple[float, int]] = []  # when, and how many tokens
        self.now = 0.0

    def closed_loop(self, lengths: Sequence[int], callers: int) -> list[Answer]:
        """Every document once; each caller sends the next when its last was answered."""
        coming: Iterator[int] = iter(lengths)
        source = random.Random(0)  # noqa: S311 - a load, not a secret
        for _ in range(callers):
            heapq.heappush(self._arrivals, (0.01 * source.random(), next(coming)))
        answers: list[Answer] = []
        while self._arrivals or self._running:
            ended = self._to_next_event()
            for answer in ended:
                answers.append(answer)
                tokens = next(coming, None)
                if tokens is not None:
                    heapq.heappush(self._arrivals, (self.now + _TURN, tokens))
            self._start_batches()
        return answers

    def _to_next_event(self) -> list[Answer]:
        """Move to the next arrival or end of a batch; the documents that are answered then."""
        ends = {worker: self.now + each.left / each.share for worker, each in self._running.items()}
        first = min(ends, key=lambda worker: ends[worker], default=None)
        arrival = self._arrivals[0][0] if self._arrivals else math.inf
        until = min(arrival, math.inf if first is None else ends[first])
        for each in self._running.values():
            each.left -= (until - self.now) * each.share
        self.now = until
        if first is None or arrival < ends[first]:
            _, tokens = heapq.heappop(self._arrivals)
            self.state.add(self._document(tokens))
            return []
        jobs = first.batch.jobs if first.batch is not None else ()
        del self._running[first]
        self.state.finish(first, jobs)
        self._share_cores()
        return [Answer(job.tokens, self.now - job.submitted) for job in jobs]

    def _document(self, tokens: int) -> Job:
        job = Inference(
            Caller(self.now),
            self.cost.seconds(tokens),
            0.0,
            tokens=tokens,
            ids=np.broadcast_to(np.int64(0), tokens),
            contributions=False,
            finish=lambda *_: None,
        )
        job.submitted = self.now
        return job

    def _start_batches(self) -> None:
        for worker in self.state.workers:
            batch = None if worker.batch else next_batch(self.state, worker, self.now)
            if batch is not None:
                self.state.start(worker, batch, self.now)
                count, longest = len(batch.jobs), max(job.tokens for job in batch.jobs)
                saved = self.state.policy.batch_saving * (count - 1)
                self._running[worker] = _Running(count * (seconds(longest) + _AROUND) - saved)
        self._share_cores()

    def _share_cores(self) -> None:
        """Give a long document its share of a core while a short one runs there."""
        for core in _CORES:
            here = [worker for worker in self._running if worker.core == core]
            both = len(here) == 2
            for worker in here:
                weight = self._weight if worker.serves is self.state.long else 1.0
                self._running[worker].share = weight / (1 + self._weight) if both else 1.0


class ByOwnWork(JobQueue):
    """By arrival plus a multiple of the document's own work."""

    times = 10.0

    def due(self, job: Job) -> float:
        """The time by which jobs are ordered."""
        return job.caller.arrival + self.times * job.work


class ByMoreOfItsWork(ByOwnWork):
    """The same with another multiple."""

    times = 25.0


ORDERS: dict[str, tuple[Policy, Callable[[Policy], JobQueue]]] = {
    "of arrival": (replace(POLICY, short_first_share=0.0), JobQueue),
    "the shorter 0.4 first": (replace(POLICY, short_first_share=0.4), JobQueue),
    "the shorter half first": (POLICY, JobQueue),
    "the shorter 0.6 first": (replace(POLICY, short_first_share=0.6), JobQueue),
    "the shorter 0.7 first": (replace(POLICY, short_first_share=0.7), JobQueue),
    "by arrival plus 10 times the own work": (POLICY, ByOwnWork),
    "by arrival plus 25 times the own work": (POLICY, ByMoreOfItsWork),
}


def compare(documents: int = 12_000, callers: int = 32) -> str:
    """A table of orders: documents a second, and what callers wait."""
    source = random.Random(7)  # noqa: S311 - lengths, not secrets
    lengths = [LogNormal().draw(source) for _ in range(documents)]
    rows = []
    for name, (policy, queue) in ORDERS.items():
        simulation = Simulation(policy, queue)
        answers = simulation.closed_loop(lengths, callers)
        all_of_them = [answer.seconds for answer in answers]
        short = [answer.seconds for answer in answers if answer.tokens < 512]
        rows.append(
            [
                name,
                f"{len(answers) / simulation.now:.0f}",
                milliseconds(percentile(all_of_them, 50)),
                milliseconds(percentile(all_of_them, 99)),
                milliseconds(percentile(short, 99)),
                milliseconds(max(all_of_them)),
            ]
        )
    head = ["order", "documents/s", "p50", "p99", "p99 below 512 tokens", "longest"]
    return table(head, rows)


if __name__ == "__main__":
    print(compare())
