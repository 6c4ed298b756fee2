"""A scheduler for tests, and pieces for an engine that only takes as long as it is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from service.engines.base import Floats
from service.engines.fake import FakeEngine
from service.scheduling.cost import CostModel
from service.scheduling.policy import Policy
from service.scheduling.queue import Piece, Ticket
from service.scheduling.scheduler import Run, Scheduler

SECONDS_A_TOKEN = 1e-3
ONE_LANE = Policy(lanes=1, long_lanes=1, long_nice=0, long_work=1.0, queue_seconds=100.0)


class GatedEngine(FakeEngine):
    """Holds every run until the test opens the gate."""

    def __init__(self) -> None:
        super().__init__(seconds=self._wait)
        self.gate = threading.Event()

    def _wait(self, _batch: int, _n: int) -> float:
        assert self.gate.wait(10)
        return 0.0


@contextmanager
def running(
    engine: FakeEngine,
    policy: Policy,
    observe: Callable[[Run], None] = lambda _: None,
) -> Iterator[Scheduler]:
    """A scheduler that is closed whatever happens."""
    cost = CostModel([(1000, 1000 * SECONDS_A_TOKEN)])
    scheduler = Scheduler(engine, cost, policy, work_clock=time.perf_counter, observe=observe)
    try:
        yield scheduler
    finally:
        if isinstance(engine, GatedEngine):
            engine.gate.set()
        scheduler.close()


def piece(tokens: int, *, arrival: float = 0.0, bulk: bool = False, ahead: float = 0.0) -> Piece:
    """A piece of so many tokens whose result is its logits."""

    def finish(logits: Floats, contributions: Floats | None) -> Any:
        return logits.copy(), contributions

    return Piece(
        Ticket(arrival, bulk),
        tokens * SECONDS_A_TOKEN,
        ahead,
        ids=np.arange(tokens, dtype=np.int64),
        contributions=False,
        finish=finish,
    )


def finish_in_order(engine: GatedEngine, scheduler: Scheduler, waiting: list[Piece]) -> list[int]:
    """Occupy the lane for long, queue the pieces, let go; the lengths in the order they ran."""
    first = piece(900)
    scheduler.submit(first)
    wait_until(lambda: len(engine.runs) == 1)
    for job in waiting:
        scheduler.submit(job)
    engine.gate.set()
    for job in waiting:
        job.future.result(10)
    return [run[0] for run in engine.runs[1:]]


def wait_until(true: Callable[[], bool]) -> None:
    """Wait for another thread to get there."""
    deadline = time.monotonic() + 10
    while not true():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.001)
