"""A scheduler for tests: its state alone, or with threads, a fake engine and a virtual clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from service.clock import Clock, VirtualClock
from service.engines.base import Floats
from service.engines.fake import FakeEngine
from service.scheduling.decide import State, next_batch
from service.scheduling.forecast import CostModel
from service.scheduling.jobs import Caller, Inference, Job
from service.scheduling.policy import Policy
from service.scheduling.scheduler import BatchRun, Scheduler

SECONDS_A_TOKEN = 1e-3
ONE_WORKER = Policy(workers=1, long_workers=1, long_niceness=0, long_work=1.0, queue_seconds=100.0)


def cost_model() -> CostModel:
    """A millisecond for each token."""
    return CostModel([(1000, 1000 * SECONDS_A_TOKEN)])


def state_of(policy: Policy = ONE_WORKER) -> State:
    """The state of a scheduler that has no threads."""
    return State(policy, cost_model())


def document(
    tokens: int, *, arrival: float = 0.0, bulk: bool = False, ahead: float = 0.0
) -> Inference:
    """A document of so many tokens whose result is its logits."""

    def finish(logits: Floats, contributions: Floats | None) -> Any:
        return logits.copy(), contributions

    return Inference(
        Caller(arrival, bulk),
        tokens * SECONDS_A_TOKEN,
        ahead,
        tokens=tokens,
        ids=np.arange(tokens, dtype=np.int64),
        contributions=False,
        finish=finish,
    )


def lengths_in_order(state: State, waiting: list[Job], worker: int = 0) -> list[list[int]]:
    """Occupy a worker, queue jobs, let it run them all; the lengths of each batch."""
    first = document(900)
    state.add(first)
    one = state.workers[worker]
    batch = next_batch(state, one, 0.0)
    assert batch is not None
    state.start(one, batch, 0.0)
    for job in waiting:
        state.add(job)
    batches: list[list[int]] = []
    while True:
        assert one.batch is not None
        state.finish(one, one.batch.jobs)
        batch = next_batch(state, one, 0.0)
        if batch is None:
            return batches
        state.start(one, batch, 0.0)
        batches.append([job.tokens for job in batch.jobs])


class Running:
    """A scheduler with threads whose time only the test moves."""

    def __init__(self, engine: FakeEngine, scheduler: Scheduler, clock: VirtualClock) -> None:
        self.engine, self.scheduler, self.clock = engine, scheduler, clock
        self.workers = scheduler.policy.workers + scheduler.policy.long_workers
        self.settle()

    def settle(self) -> None:
        """Wait until every worker runs something or waits for work."""
        self.clock.settle(self.workers)

    def submit(self, *jobs: Job) -> None:
        """Queue jobs, one at a time, and let the workers react to each."""
        for job in jobs:
            self.scheduler.submit(job)
            self.settle()

    def advance(self, seconds: float) -> None:
        """Move the time on, from event to event."""
        end = self.clock.now() + seconds
        while (event := self.clock.next_event()) is not None and event <= end:
            self.clock.advance(event - self.clock.now())
            self.settle()
        self.clock.advance(end - self.clock.now())
        self.settle()

    def finish(self, *jobs: Job) -> None:
        """Move the time on until these jobs are done."""
        while not all(job.future.done() for job in jobs):
            event = self.clock.next_event()
            assert event is not None, "nothing is under way, and jobs still wait"
            self.clock.advance(event - self.clock.now())
            self.settle()


@contextmanager
def running(
    policy: Policy = ONE_WORKER,
    observe: Callable[[BatchRun], None] = lambda _: None,
    engine: Callable[[Clock], FakeEngine] | None = None,
) -> Iterator[Running]:
    """A scheduler whose runs take a millisecond a token of virtual time; closed at the end."""
    clock = VirtualClock()
    made = engine(clock) if engine else timed_engine(clock)
    scheduler = Scheduler(
        made, cost_model(), policy, clock=clock, work_clock=clock.now, observe=observe
    )
    try:
        yield Running(made, scheduler, clock)
    finally:
        clock.stop()
        assert scheduler.close(10)


def timed_engine(clock: Clock) -> FakeEngine:
    """An engine that takes a millisecond for each token of the longest document."""
    return FakeEngine(seconds=lambda _batch, n: n * SECONDS_A_TOKEN, clock=clock)


def wait_until(true: Callable[[], bool]) -> None:
    """Wait for another thread to get there."""
    deadline = time.monotonic() + 10
    while not true():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.001)
