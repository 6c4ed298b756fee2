"""Carries out what `decide` decides: the worker threads, and the one lock over the state.

A worker is a thread that runs one batch at a time on one core. There are as many for short
documents as cores, and as many for long ones with a lower thread priority. Callers submit jobs
and wait on their futures.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from service.clock import Clock
from service.engines.base import Engine, Ids
from service.errors import OutOfMemory
from service.logs import service as log
from service.scheduling.cores import lower_priority, stay_on_core
from service.scheduling.decide import PriorityClass, State, WorkerState, next_batch, worker_to_wake
from service.scheduling.forecast import Admission, CostModel
from service.scheduling.jobs import Batch, BatchRun, Call, Inference, Job, JobResult
from service.scheduling.policy import Policy

__all__ = ["BatchRun", "JobResult", "Scheduler"]

_SMALL = 512  # tokens: what runs of no more leave behind is not worth giving back
_ONE_TOKEN, _ONE = np.zeros((1, 1), dtype=np.int64), np.ones(1, dtype=np.int64)


class Session:
    """An engine with the memory that it keeps; several workers may share one.

    An engine keeps what its largest run needed. It is given back once no run has needed at least
    half as much for `keep_memory_seconds`: at the end of the next run, or when a worker is idle.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.largest = 0  # tokens of the largest run since memory was given back
        self.until = 0.0  # when it had better be


class Worker:
    """A thread's own things: its session, and results that are not delivered yet."""

    def __init__(
        self, state: WorkerState, niceness: int, session: Session, alarm: threading.Condition
    ) -> None:
        self.state, self.niceness, self.session = state, niceness, session
        self.alarm = alarm
        self.pending: list[tuple[Job, JobResult]] = []


class Scheduler:
    """Runs jobs on worker threads. Safe to use from several threads at once."""

    def __init__(
        self,
        engine: Engine,
        cost: CostModel,
        policy: Policy,
        *,
        clock: Clock | None = None,
        work_clock: Callable[[], float] = time.thread_time,
        observe: Callable[[BatchRun], None] = lambda _: None,
    ) -> None:
        self.cost = cost
        clock = clock or Clock()
        self._now, self._work_clock, self._observe = clock.now, work_clock, observe
        self._lock = threading.Lock()
        self._state = State(policy, cost)
        self.admission = Admission(self._state)
        self._all_cores: Session | None = None
        self._closed = False
        self._last_run_failed = False
        session = Session(engine)
        self._workers = [
            Worker(
                state,
                policy.niceness + (policy.long_niceness if state.serves is self._state.long else 0),
                session,
                clock.alarm(self._lock),
            )
            for state in self._state.workers
        ]
        self._threads = [
            threading.Thread(target=self._work, args=(worker,), name=f"worker-{i}", daemon=True)
            for i, worker in enumerate(self._workers)
        ]
        for thread in self._threads:
            thread.start()

    # For callers.

    def submit(self, job: Job) -> None:
        """Queue a job; its future gets a `JobResult` or an error."""
        job.submitted = self._now()
        with self._lock:
            closed = self._closed
            if not closed:
                self._call(worker_to_wake(self._state, self._state.add(job)))
        if closed:
            job.future.cancel()
        else:
            job.future.add_done_callback(partial(self._drop, job))

    def adopt(
        self,
        *,
        batch_below: int | None = None,
        batch_saving: float = 0.0,
        engines: Sequence[Engine] = (),
        all_cores: Engine | None = None,
    ) -> None:
        """Take up what was found out or opened since the start; runs under way are not touched.

        batch_below, batch_saving  as in the policy
        engines                    one for each further core, with memory of its own
        all_cores                  with a thread for each core, for a long document that is alone
        """
        with self._lock:
            if batch_below is not None:
                self._state.policy = replace(
                    self._state.policy, batch_below=batch_below, batch_saving=batch_saving
                )
            if all_cores is not None:
                self._all_cores, self._state.can_use_all_cores = Session(all_cores), True
            # The two workers of a core share a session: they take turns, and find its weights in
            # the core's cache.
            for index, engine in enumerate(engines, start=1):
                session = Session(engine)
                for serves in (self._state.short, self._state.long):
                    of_class = [w for w in self._workers if w.state.serves is serves]
                    for worker in of_class[index : index + 1]:
                        worker.session = session

    @property
    def policy(self) -> Policy:
        """How it decides."""
        return self._state.policy

    @property
    def backlog(self) -> float:
        """Predicted seconds of one core that wait or run."""
        return self._state.backlog

    @property
    def depth(self) -> int:
        """Jobs that wait or run."""
        return self._state.depth

    @property
    def tokens_running(self) -> int:
        """Tokens in all runs under way."""
        return self._state.tokens_running

    @property
    def engines(self) -> set[Engine]:
        """All engines that workers may use."""
        sessions = {worker.session for worker in self._workers}
        if self._all_cores is not None:
            sessions.add(self._all_cores)
        return {session.engine for session in sessions}

    @property
    def all_cores_threads(self) -> int:
        """Threads that a long document gets when it is alone; 0 when it always gets one."""
        return 0 if self._all_cores is None else self._all_cores.engine.info.threads

    def healthy(self) -> bool:
        """Whether every worker can take work and the last run succeeded."""
        alive = all(thread.is_alive() for thread in self._threads)
        return alive and not self._closed and not self._last_run_failed

    def close(self, timeout: float | None = None) -> bool:
        """Drop what waits, let what runs finish, end the workers; false when they took too long."""
        with self._lock:
            self._closed = True
            waiting = [*self._state.short.queue.waiting, *self._state.long.queue.waiting]
            for worker in self._workers:
                worker.alarm.notify()
        for job in waiting:
            job.future.cancel()
        until = None if timeout is None else time.monotonic() + timeout
        for thread in self._threads:
            thread.join(None if until is None else max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    # On the worker threads.

    def _work(self, worker: Worker) -> None:
        if worker.niceness:
            lower_priority(worker.niceness)
        if worker.state.core is not None:
            stay_on_core(worker.state.core)
        while (task := self._next_task(worker)) is not None:
            task()

    def _next_task(self, worker: Worker) -> Callable[[], None] | None:
        """Wait for something to do; None when the scheduler is closed.

        Before it waits, a worker delivers results and gives back memory whose time is over.
        """
        with self._lock:
            while not self._closed:
                now = self._now()
                batch = next_batch(self._state, worker.state, now)
                if batch is not None:
                    batch = self._without_leavers(batch)
                    if batch.jobs:
                        self._state.start(worker.state, batch, now)
                        return partial(self._run, worker, batch)
                    continue
                if worker.pending:
                    return partial(self._deliver, worker)
                until = None
                for session in self._sessions_of(worker):
                    if session.largest > _SMALL:
                        if now >= session.until:
                            session.largest = 0
                            return partial(_release_memory, session)
                        until = session.until if until is None else min(until, session.until)
                worker.state.waiting = True
                worker.alarm.wait(None if until is None else until - now)
                worker.state.waiting = False
            return partial(self._deliver, worker) if worker.pending else None

    def _without_leavers(self, batch: Batch) -> Batch:
        """The batch without jobs whose callers have just left."""
        for job in batch.jobs:
            if not job.future.set_running_or_notify_cancel():
                self._state.drop(job)
                rest = tuple(other for other in batch.jobs if other is not job)
                batch = replace(
                    batch, jobs=rest, tokens=batch.tokens - job.tokens, work=batch.work - job.work
                )
        return batch

    def _run(self, worker: Worker, batch: Batch) -> None:
        """Run a batch; its results are delivered just before the next one."""
        first = batch.jobs[0]
        if isinstance(first, Call):
            self._deliver(worker)
            self._run_call(worker, first)
            return
        documents = [job for job in batch.jobs if isinstance(job, Inference)]
        try:
            ran = self._run_documents(worker, batch, documents)
        except BaseException as error:  # whatever it was, each caller must get it
            failure = OutOfMemory() if isinstance(error, MemoryError) else error
            self._last_run_failed = True
            self._finish(worker, batch)
            for job in documents:
                job.future.set_exception(failure)
        else:
            self._last_run_failed = False
            self._observe(ran)

    def _run_documents(
        self, worker: Worker, batch: Batch, documents: Sequence[Inference]
    ) -> BatchRun:
        session = (self._all_cores if batch.all_cores else None) or worker.session
        release = session.largest > _SMALL and self._now() >= session.until
        if release:
            session.largest = 0
        ids, lengths = padded(documents)
        self._deliver(worker)
        started, work_before = self._now(), self._work_clock()
        output = session.engine.run(
            ids, lengths, contributions=documents[0].contributions, release_memory=release
        )
        work = self._work_clock() - work_before
        values, shares = [], output.contributions
        for row, job in enumerate(documents):
            own = None if shares is None else shares[row, : job.tokens]
            values.append(job.finish(output.logits[row], own))
        seconds = self._now() - started
        if len(documents) == 1 and not batch.all_cores:
            self.cost.observe(batch.tokens, work)
        self._finish(worker, batch, (seconds, work))
        waits, tokens = [], []
        for job, value in zip(documents, values, strict=True):
            waits.append(started - job.submitted)
            tokens.append(job.tokens)
            worker.pending.append((job, JobResult(value, waits[-1], seconds)))
        return BatchRun(tuple(tokens), seconds, tuple(waits), batch.all_cores)

    def _finish(
        self, worker: Worker, batch: Batch, took: tuple[float, float] | None = None
    ) -> None:
        """Give back a batch's room; `took` are its seconds and its work."""
        session = (self._all_cores if batch.all_cores else None) or worker.session
        with self._lock:
            if took is not None and worker.state.serves is self._state.short:
                self.admission.learn_pace(*took)
            if 2 * batch.tokens >= session.largest:
                session.until = self._now() + self._state.policy.keep_memory_seconds
            session.largest = max(batch.tokens, session.largest)
            self._state.finish(worker.state, batch.jobs)
            self._wake_for_room()

    def _run_call(self, worker: Worker, call: Call) -> None:
        """Run a function and answer with what it returns or raises."""
        started = self._now()
        value: Any = None
        failure: BaseException | None = None
        try:
            value = call.function()
        except MemoryError:
            failure = OutOfMemory()
        except BaseException as error:  # whatever it was, the caller must get it
            failure = error
        ran = self._now() - started
        with self._lock:  # before anybody hears of it, who may look for room at once
            self._state.finish(worker.state, (call,))
        if failure is not None:
            call.future.set_exception(failure)
        else:
            call.future.set_result(JobResult(value, started - call.submitted, ran))

    def _deliver(self, worker: Worker) -> None:
        """Hand over the results of the last run.

        Best done just before the next run: a thread that is woken by a result can only go on when
        this one releases the interpreter, which is then.
        """
        pending, worker.pending = worker.pending, []
        for job, result in pending:
            job.future.set_result(result)

    def _sessions_of(self, worker: Worker) -> Iterable[Session]:
        """The sessions whose memory a worker looks after while it is idle."""
        if self._all_cores is None or worker.state.serves is not self._state.long:
            return (worker.session,)
        return (worker.session, self._all_cores)

    def _wake(self, serves: PriorityClass) -> bool:
        """Call a worker for new work, with the lock held; false when none waits."""
        chosen = worker_to_wake(self._state, serves)
        self._call(chosen)
        return chosen is not None

    def _call(self, chosen: WorkerState | None) -> None:
        if chosen is not None:
            chosen.waiting = False
            self._workers[chosen.number].alarm.notify()

    def _wake_for_room(self) -> None:
        """Call the workers that wait although there is work: there may be room for it now."""
        for serves in (self._state.short, self._state.long):
            while serves.queue.head is not None and self._wake(serves):
                pass

    def _drop(self, job: Job, _future: Any = None) -> None:
        """Forget a job that its caller has dropped; one that is answered is forgotten already."""
        if job.future.cancelled():
            with self._lock:
                self._state.drop(job)
                self._wake_for_room()


def padded(jobs: Sequence[Inference]) -> tuple[Ids, Ids]:
    """Documents' ids (batch, n), padded with zeros to the longest, and their lengths (batch,)."""
    lengths = np.array([job.tokens for job in jobs], dtype=np.int64)
    if len(jobs) == 1:
        return jobs[0].ids[None], lengths
    ids = np.zeros((len(jobs), lengths.max()), dtype=np.int64)
    for row, job in zip(ids, jobs, strict=True):
        row[: job.tokens] = job.ids
    return ids, lengths


def _release_memory(session: Session) -> None:
    """Give back what earlier runs needed, by the smallest run there is."""
    try:
        session.engine.run(_ONE_TOKEN, _ONE, release_memory=True)
    except Exception as error:  # of whatever kind: it is tried again after the next large run
        log.warning("memory could not be given back: %s", error)
