"""What a worker thread does: run a batch, deliver results, give back memory that runs needed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np

from service.clock import Clock
from service.engines.base import Engine, Ids
from service.errors import OutOfMemory
from service.scheduling.queue import Call, Inference
from service.scheduling.state import WorkerState

_SMALL = 512  # tokens: what runs of no more leave behind is not worth giving back
_ONE_TOKEN, _ONE = np.zeros((1, 1), dtype=np.int64), np.ones(1, dtype=np.int64)


@dataclass(frozen=True)
class JobResult:
    """A job's result with the seconds it waited and ran."""

    value: Any
    queued: float
    ran: float


@dataclass(frozen=True)
class BatchRun:
    """One run of the engine, for the metrics."""

    tokens: tuple[int, ...]
    seconds: float
    waits: tuple[float, ...]
    all_cores: bool = False


@dataclass(frozen=True)
class Ran:
    """What came of a batch: a value for each of its jobs, or what stopped it."""

    values: list[Any]
    started: float
    seconds: float = 0.0
    work: float = 0.0
    error: BaseException | None = None


class Session:
    """An engine with the memory that it keeps; several workers may share one.

    An engine keeps what its largest run needed. It is given back once no run has needed at least
    half as much for `keep_memory_seconds`: at the end of the next run, or when a worker is idle.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._largest = 0  # tokens of the largest run since memory was given back
        self._until = 0.0

    def ran(self, tokens: int, until: float) -> None:
        """Note a run, and until when memory of its size is worth keeping."""
        if 2 * tokens >= self._largest:
            self._until = until
        self._largest = max(tokens, self._largest)

    @property
    def release_at(self) -> float | None:
        """When it should give memory back; None when it keeps little."""
        return self._until if self._largest > _SMALL else None

    def take_release(self, now: float) -> bool:
        """Whether memory should be given back now; the caller then does so."""
        due = self._largest > _SMALL and now >= self._until
        if due:
            self._largest = 0
        return due

    def release_memory(self) -> None:
        """Give back what earlier runs needed, by the smallest run there is."""
        self.engine.run(_ONE_TOKEN, _ONE, release_memory=True)


class Worker:
    """A thread's own things: its session, and results that are not delivered yet."""

    def __init__(
        self, state: WorkerState, niceness: int, session: Session, alarm: threading.Condition
    ) -> None:
        self.state, self.niceness, self.session = state, niceness, session
        self.alarm = alarm
        self.pending: list[tuple[Future[Any], Any]] = []

    def deliver(self) -> None:
        """Hand over the results of the last run.

        Best done just before the next run: a thread that is woken by a result can only go on when
        this one releases the interpreter, which is then.
        """
        pending, self.pending = self.pending, []
        for future, result in pending:
            future.set_result(result)

    def run(
        self,
        engine: Engine,
        jobs: Sequence[Inference],
        clock: Clock,
        work_clock: Callable[[], float],
        *,
        release_memory: bool,
    ) -> Ran:
        """Run documents as one batch, delivering earlier results first."""
        started = clock.now()
        try:
            ids, lengths = padded(jobs)
            self.deliver()
            started, work_before = clock.now(), work_clock()
            output = engine.run(
                ids,
                lengths,
                contributions=jobs[0].contributions,
                release_memory=release_memory,
            )
            work = work_clock() - work_before
            values = [
                job.finish(
                    output.logits[row],
                    None
                    if output.contributions is None
                    else output.contributions[row, : job.tokens],
                )
                for row, job in enumerate(jobs)
            ]
        except MemoryError:
            return Ran([], started, error=OutOfMemory())
        except BaseException as error:  # whatever it was, each caller must get it
            return Ran([], started, error=error)
        return Ran(values, started, clock.now() - started, work)


def run_call(call: Call, clock: Clock) -> None:
    """Run a function and answer with what it returns or raises."""
    started = clock.now()
    try:
        value = call.function()
    except MemoryError:
        call.future.set_exception(OutOfMemory())
    except BaseException as error:  # whatever it was, the caller must get it
        call.future.set_exception(error)
    else:
        waited = started - call.submitted
        call.future.set_result(JobResult(value, waited, clock.now() - started))


def padded(jobs: Sequence[Inference]) -> tuple[Ids, Ids]:
    """Documents' ids (batch, n), padded with zeros to the longest, and their lengths (batch,)."""
    lengths = np.array([job.tokens for job in jobs], dtype=np.int64)
    if len(jobs) == 1:
        return jobs[0].ids[None], lengths
    ids = np.zeros((len(jobs), lengths.max()), dtype=np.int64)
    for row, job in zip(ids, jobs, strict=True):
        row[: job.tokens] = job.ids
    return ids, lengths
