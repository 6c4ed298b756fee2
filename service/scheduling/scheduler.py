"""The scheduler: decides which document runs next, on which thread, and with which others.

Lanes are threads, each of which runs one group at a time on one core. There are as many fast
lanes as cores, and as many long-document lanes whose threads have a lower priority: work goes to
the core where least is going on, and when a short document needs a long one's core, the operating
system takes it away at once and gives it back afterwards. A long document that has been held up
for too long gets its turn: half of the fast lanes rest until it is done. One that is alone, or is
about to be, is lent the idle cores. Where threads have no priority, fewer lanes take long
documents, so that one stays free for short ones.

Within a tier, the shortest expected work goes first (`jobs.JobQueue`).
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from service.engines.base import Engine
from service.scheduling.admission import Admission
from service.scheduling.cores import lower_priority, stay_on_core
from service.scheduling.cost import CostModel
from service.scheduling.policy import Policy
from service.scheduling.queue import Job, Piece, Step, batch_of
from service.scheduling.workers import Lane, Tier

_SCAN = 64  # waiting jobs looked at for company
_LARGE = 8192  # tokens of a run that leaves much memory behind
_SOON = 0.25  # share of a document's work: what else runs and ends within it does not count


@dataclass(frozen=True)
class Run:
    """What happened in one run, for the metrics."""

    tokens: tuple[int, ...]
    seconds: float
    waits: tuple[float, ...]
    lent: bool = False


@dataclass(frozen=True)
class Done:
    """A job's result with the seconds it waited and ran."""

    value: Any
    queued: float
    ran: float


class Scheduler:
    """Runs jobs on lanes. Thread-safe; callers wait on the jobs' futures."""

    def __init__(
        self,
        engine: Engine,
        cost: CostModel,
        policy: Policy,
        *,
        work_clock: Callable[[], float] = time.thread_time,
        observe: Callable[[Run], None] = lambda _: None,
    ) -> None:
        self.engine, self.cost, self.policy = engine, cost, policy
        self.wide: Engine | None = None  # the same with a thread a lane, for who is alone
        self._work_clock, self._observe = work_clock, observe
        self._lock = threading.Lock()
        self._fast, self._long = Tier(policy), Tier(policy)
        self.admission = Admission(cost, policy, self._fast, self._long)
        self._announced: dict[Step, Tier] = {}  # where the piece behind each step will go
        self._tokens_running = 0
        self._short_of_tokens = False  # whether a lane waits for others' tokens
        self._keep_until = 0.0  # when lanes give back what large runs needed, unless one comes
        self._closed = False
        self._last_run_failed = False
        self._at_work: Counter[int | None] = Counter()  # lanes that run something, by core
        for tier, count, nice in (
            (self._fast, policy.lanes, policy.nice),
            (self._long, policy.long_lanes, policy.nice + policy.long_nice),
        ):
            cores = itertools.islice(itertools.cycle(policy.cores or (None,)), count)
            tier.lanes = [Lane(tier, nice, core, engine, self._lock) for core in cores]
        self._threads = [
            threading.Thread(target=self._work, args=(lane,), name=f"lane-{index}", daemon=True)
            for index, lane in enumerate([*self._fast.lanes, *self._long.lanes])
        ]
        for thread in self._threads:
            thread.start()

    # What callers ask and do.

    def submit(self, job: Job) -> None:
        """Queue a job; its future gets a `Done` or an error."""
        job.submitted = time.monotonic()
        # A step holds the interpreter for long stretches; on a lane of low priority, which the
        # system may stop at any moment, it would hold up the event loop and every other lane.
        tier = self._tier(job.work) if isinstance(job, Piece) else self._fast
        with self._lock:
            closed = self._closed
            if not closed:
                tier.add(job)
                self._wake(tier)
                if isinstance(job, Step):
                    followed = self._announced[job] = self._tier(job.follows)
                    followed.backlog += job.follows
        if closed:
            job.future.cancel()
        else:
            job.future.add_done_callback(lambda _: self._settle(tier, job))

    @property
    def backlog(self) -> float:
        """Predicted seconds of one core that are queued or running."""
        return self._fast.backlog + self._long.backlog

    @property
    def depth(self) -> int:
        """Jobs that wait or run."""
        return self._fast.jobs + self._long.jobs

    def separate_lanes(self) -> None:
        """Give each core an engine of its own, so that none waits for another's memory.

        A core's two lanes share it: taking turns, they find its weights where the other left them.
        """
        fast, long = self._fast.lanes, self._long.lanes
        for index, lane in enumerate(fast[1:], start=1):
            own = self.engine.doubled()
            if own is None:
                return
            for same_core in (lane, *long[index : index + 1]):
                same_core.engine = own

    @property
    def engines(self) -> set[Engine]:
        """All engines that its lanes may use."""
        lent = set() if self.wide is None else {self.wide}
        return {self.engine, *lent, *(lane.engine for lane in self._fast.lanes)}

    @property
    def lent_threads(self) -> int:
        """Threads that a long document gets when it is alone; 0 when it keeps to its lane's."""
        return 0 if self.wide is None else self.wide.info.threads

    def cores_at_work(self) -> dict[int | None, int]:
        """How many lanes run something on each core."""
        with self._lock:
            return {core: count for core, count in self._at_work.items() if count}

    def healthy(self) -> bool:
        """Whether every lane can take work and the last run succeeded."""
        alive = all(thread.is_alive() for thread in self._threads)
        return alive and not self._closed and not self._last_run_failed

    def close(self, timeout: float | None = None) -> bool:
        """Drop what waits, let what runs finish, end the lanes; false when they took too long."""
        with self._lock:
            self._closed = True
            waiting = [*self._fast.queue.waiting(), *self._long.queue.waiting()]
            self._wake_all()
        for job in waiting:
            job.future.cancel()
        until = None if timeout is None else time.monotonic() + timeout
        for thread in self._threads:
            thread.join(None if until is None else max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    # What a lane does.

    def _work(self, lane: Lane) -> None:
        if lane.nice:
            lower_priority(lane.nice)
        if lane.core is not None:
            stay_on_core(lane.core)
        while (group := self._take(lane)) or lane.owed or lane.grown:
            if not group and not lane.owed:
                lane.shrink()
            elif not group:
                lane.deliver()
            elif isinstance(group[0], Step):
                lane.deliver()
                self._run_step(lane.tier, group[0])
            else:
                self._run_pieces(lane, [job for job in group if isinstance(job, Piece)])

    def _take(self, lane: Lane) -> list[Job]:
        """The lane's next group; an empty one means that the scheduler is closed.

        Or that there is none yet and the lane has something else to do: it waits only without
        debts, and keeps what large runs needed only for a while.
        """
        tier = lane.tier
        with self._lock:
            if lane.busy:
                lane.busy = False
                self._at_work[lane.core] -= 1
            while not self._closed:
                keep = self._keep_until - time.monotonic() if lane.grown else None
                if keep is not None and keep <= 0 and not lane.owed:
                    return []
                head = None if self._rests(lane) else tier.next
                if head is not None and self._fits(head.tokens):
                    group = [job for job in self._group(tier, head) if _start(tier, job)]
                    if group:
                        self._tokens_running += sum(job.tokens for job in group)
                        lane.busy = True
                        lane.until = time.monotonic() + sum(job.work for job in group)
                        self._at_work[lane.core] += 1
                        return group
                    continue
                if lane.owed:
                    return []
                self._short_of_tokens |= head is not None
                lane.waits = True
                lane.alarm.wait(keep)
                lane.waits = False
            return []

    def _wake(self, tier: Tier) -> None:
        """Call a lane for new work: of those that wait, the one on the core with least work."""
        waiting = [lane for lane in tier.lanes if lane.waits]
        if waiting:
            lane = min(waiting, key=lambda lane: self._at_work[lane.core])
            lane.waits = False
            lane.alarm.notify()

    def _wake_all(self) -> None:
        for lane in (*self._fast.lanes, *self._long.lanes):
            lane.alarm.notify()

    def _rests(self, lane: Lane) -> bool:
        """Whether a fast lane leaves its core to long documents, one of which was held up too long.

        Half of the fast lanes do, unless short documents have to wait as long themselves.
        """
        oldest, fast = self._long.oldest, self._fast
        if lane.tier is not fast or oldest is None:
            return False
        if not any(other.busy and other.core == lane.core for other in self._long.lanes):
            return False
        if 2 * sum(other.busy for other in fast.lanes) < self.policy.lanes:
            return False
        held_up = time.monotonic() - oldest.ticket.arrival - oldest.work - oldest.ahead
        return held_up > max(self.policy.long_wait, fast.backlog / self.policy.lanes)

    def _fits(self, tokens: int) -> bool:
        running = self._tokens_running
        return running == 0 or running + tokens <= self.policy.tokens_running

    def _group(self, tier: Tier, head: Job) -> list[Job]:
        """The head and whoever had better share its run: pieces of about its length.

        No more than this lane's share of those that wait: the others want work, too.
        """
        policy = self.policy
        if not isinstance(head, Piece) or head.tokens > policy.group_below:
            return [head]
        waiting = [
            job
            for job in tier.queue.next_ones(_SCAN)
            if isinstance(job, Piece)
            and job is not head
            and job.contributions == head.contributions
        ]
        most = min(policy.group_size, -(-(1 + len(waiting)) // policy.lanes))
        group: list[Job] = [head]
        longest = head.tokens
        for job in waiting:
            if len(group) >= most:
                break
            longest_with = max(longest, job.tokens)
            fits = longest_with * (len(group) + 1) <= policy.group_tokens
            if fits and longest_with <= policy.group_below and self._gains([*group, job]):
                group.append(job)
                longest = longest_with
        return group

    def _gains(self, group: Sequence[Job]) -> bool:
        """Whether sharing a run saves at least twice what padding costs."""
        longest = self.cost.seconds(max(job.tokens for job in group))
        padding = sum(longest - self.cost.seconds(job.tokens) for job in group)
        return 2 * padding <= self.policy.group_saving * (len(group) - 1)

    def _run_step(self, tier: Tier, step: Step) -> None:
        started = time.monotonic()
        step.waited += started - step.submitted
        try:
            value = step.call()
        except BaseException as error:  # whatever it was, the waiter must know
            if step.future.set_running_or_notify_cancel():
                step.future.set_exception(error)
            return
        if isinstance(value, Piece):
            value.future, value.waited = step.future, step.waited
            self._settle(tier, step)
            self.submit(value)
        elif step.future.set_running_or_notify_cancel():
            step.future.set_result(Done(value, step.waited, time.monotonic() - started))

    def _run_pieces(self, lane: Lane, group: Sequence[Piece]) -> None:
        engine = self._engine_for(lane, group[0].work)
        tokens = tuple(piece.tokens for piece in group)
        try:
            ids, lengths = batch_of(group), np.array(tokens, dtype=np.int64)  # (batch, n), (batch,)
            lane.deliver()
            started, work_before = time.monotonic(), self._work_clock()
            output = engine.run(ids, lengths, contributions=group[0].contributions)
            work = self._work_clock() - work_before
            values = [
                piece.finish(
                    output.logits[i],
                    None if output.contributions is None else output.contributions[i, : tokens[i]],
                )
                for i, piece in enumerate(group)
            ]
        except BaseException as error:  # whatever it was, each waiter must know
            self._last_run_failed = True
            with self._lock:
                self._release(lane, engine, group)
            for piece in group:
                piece.future.set_exception(error)
            return
        ended = time.monotonic()
        self._last_run_failed = False
        lent = engine is self.wide
        if len(group) == 1 and not lent:
            self.cost.observe(tokens[0], work)
        with self._lock:
            if lane.tier is self._fast:
                self.admission.learn_pace(ended - started, work)
            self._release(lane, engine, group)
        waits = tuple(piece.waited + started - piece.submitted for piece in group)
        self._observe(Run(tokens, ended - started, waits, lent))
        lane.owed += [
            (piece.future, Done(value, wait, ended - started))
            for piece, value, wait in zip(group, values, waits, strict=True)
        ]

    def _engine_for(self, lane: Lane, work: float) -> Engine:
        """The lane's, or the wide one for a long document that is alone, or is about to be."""
        long, fast = self._long, self._fast
        if self.wide is None or lane.tier is not long:
            return lane.engine
        soon = time.monotonic() + _SOON * work
        with self._lock:
            others = [other for other in long.lanes if other.busy and other is not lane]
            lasting = sum(other.busy and other.until > soon for other in fast.lanes)
            alone = long.jobs == 1 + len(others) and all(other.until <= soon for other in others)
            idle = fast.backlog <= _SOON * work * self.policy.lanes
            lends = alone and idle and 2 * (1 + lasting) <= self.policy.lanes
        return self.wide if lends else lane.engine

    def _release(self, lane: Lane, engine: Engine, group: Sequence[Piece]) -> None:
        """Give back the room of pieces that have run, with the lock held."""
        tokens = sum(piece.tokens for piece in group)
        self._tokens_running -= tokens
        if tokens >= _LARGE:
            lane.grown.add(engine)
            self._keep_until = time.monotonic() + self.policy.keep_memory
        for piece in group:
            self._forget(lane.tier, piece)
        if self._short_of_tokens:
            self._short_of_tokens = False
            self._wake_all()

    def _tier(self, work: float) -> Tier:
        return self._long if self.admission.is_long(work) else self._fast

    def _settle(self, tier: Tier, job: Job) -> None:
        with self._lock:
            self._forget(tier, job)

    def _forget(self, tier: Tier, job: Job) -> None:
        """Count a job no more, with the lock held."""
        if job.settled:
            return
        tier.remove(job)
        if isinstance(job, Step):
            self._announced.pop(job).backlog -= job.follows
        if tier is self._long and len(self._fast.queue):
            self._wake_all()  # whoever rests for it
        if self.depth == 0:  # what is left is rounding
            self._fast.backlog = self._long.backlog = 0.0


def _start(tier: Tier, job: Job) -> bool:
    """Take a job for running; false when its caller has just left.

    A step's future stays open to cancellation: the piece that may follow can still be dropped.
    """
    tier.queue.take(job)
    if isinstance(job, Step):
        return not job.future.cancelled()
    return job.future.set_running_or_notify_cancel()
