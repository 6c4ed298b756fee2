"""Carries out what `decide` decides: the worker threads, and the one lock over the state.

A worker is a thread that runs one batch at a time on one core. There are as many for short
documents as cores, and as many for long ones with a lower thread priority. Callers submit jobs
and wait on their futures.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from service.clock import Clock
from service.engines.base import Engine
from service.logs import service as log
from service.scheduling.admission import Admission
from service.scheduling.cores import lower_priority, stay_on_core
from service.scheduling.cost import CostModel
from service.scheduling.decide import next_batch, worker_to_wake
from service.scheduling.policy import Policy
from service.scheduling.queue import Call, Inference, Job
from service.scheduling.state import Batch, PriorityClass, State
from service.scheduling.workers import BatchRun, JobResult, Session, Worker, run_call

__all__ = ["BatchRun", "JobResult", "Scheduler"]


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
        self._clock = clock or Clock()
        self._work_clock, self._observe = work_clock, observe
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
                self._clock.alarm(self._lock),
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
        job.submitted = self._clock.now()
        with self._lock:
            closed = self._closed
            if not closed:
                self._wake(self._state.add(job))
        if closed:
            job.future.cancel()
        else:
            job.future.add_done_callback(lambda _: self._drop(job))

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
            waiting = [*self._state.short.queue, *self._state.long.queue]
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
        """Wait for a batch to run; None when the scheduler is closed.

        Before it waits, a worker delivers results and gives back memory whose time is over.
        """
        with self._lock:
            while not self._closed:
                now = self._clock.now()
                batch = next_batch(self._state, worker.state, now)
                if batch is not None:
                    # False for a job whose caller has just left.
                    jobs = tuple(
                        job for job in batch.jobs if job.future.set_running_or_notify_cancel()
                    )
                    for job in batch.jobs:
                        if job not in jobs:
                            self._state.drop(job)
                    if jobs:
                        batch = replace(batch, jobs=jobs)
                        self._state.start(worker.state, batch, now)
                        return self._task_of(worker, batch, now)
                    continue
                if worker.pending:
                    return worker.deliver
                idle = self._keeps_memory(worker)
                for session in idle:
                    if session.take_release(now):
                        return partial(_release_memory, session)
                times = [session.release_at for session in idle]
                until = min((time for time in times if time is not None), default=None)
                worker.state.waiting = True
                worker.alarm.wait(None if until is None else max(0.0, until - now))
                worker.state.waiting = False
            return worker.deliver if worker.pending else None

    def _task_of(self, worker: Worker, batch: Batch, now: float) -> Callable[[], None]:
        first = batch.jobs[0]
        if isinstance(first, Call):
            return partial(self._run_call, worker, first)
        all_cores = self._all_cores if batch.all_cores else None
        session = all_cores or worker.session
        release = session.take_release(now)
        return partial(self._run_batch, worker, batch, session, release_memory=release)

    def _run_call(self, worker: Worker, call: Call) -> None:
        worker.deliver()
        run_call(call, self._clock)
        with self._lock:
            self._state.finish(worker.state, [call])

    def _run_batch(
        self, worker: Worker, batch: Batch, session: Session, *, release_memory: bool
    ) -> None:
        jobs = [job for job in batch.jobs if isinstance(job, Inference)]
        ran = worker.run(
            session.engine, jobs, self._clock, self._work_clock, release_memory=release_memory
        )
        self._last_run_failed = ran.error is not None
        if ran.error is None and len(jobs) == 1 and not batch.all_cores:
            self.cost.observe(jobs[0].tokens, ran.work)
        with self._lock:
            if ran.error is None and worker.state.serves is self._state.short:
                self.admission.learn_pace(ran.seconds, ran.work)
            session.ran(batch.tokens, self._clock.now() + self.policy.keep_memory_seconds)
            self._state.finish(worker.state, batch.jobs)
            self._wake_for_room()
        if ran.error is not None:
            for job in jobs:
                job.future.set_exception(ran.error)
            return
        waits = tuple(ran.started - job.submitted for job in jobs)
        tokens = tuple(job.tokens for job in jobs)
        self._observe(BatchRun(tokens, ran.seconds, waits, batch.all_cores))
        worker.pending += [
            (job.future, JobResult(value, wait, ran.seconds))
            for job, value, wait in zip(jobs, ran.values, waits, strict=True)
        ]

    def _keeps_memory(self, worker: Worker) -> list[Session]:
        """The sessions whose memory a worker looks after while it is idle."""
        all_cores = self._all_cores
        if all_cores is None or worker.state.serves is not self._state.long:
            return [worker.session]
        return [worker.session, all_cores]

    def _wake(self, serves: PriorityClass) -> bool:
        """Call a worker for new work, with the lock held; false when none waits."""
        chosen = worker_to_wake(self._state, serves)
        if chosen is None:
            return False
        chosen.waiting = False
        self._workers[chosen.number].alarm.notify()
        return True

    def _wake_for_room(self) -> None:
        """Call the workers that wait although there is work: there may be room for it now."""
        for serves in (self._state.short, self._state.long):
            if len(serves.queue):
                while self._wake(serves):
                    pass

    def _drop(self, job: Job) -> None:
        with self._lock:
            self._state.drop(job)
            self._wake_for_room()


def _release_memory(session: Session) -> None:
    try:
        session.release_memory()
    except Exception as error:  # of whatever kind: it is tried again after the next large run
        log.warning("memory could not be given back: %s", error)
