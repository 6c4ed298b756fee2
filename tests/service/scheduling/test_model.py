"""The scheduler against a model of it: random arrivals, leavers, deadlines, faults and closings.

The real scheduler runs with its threads, a fake engine and a virtual clock. After each step all
threads are held up, so what the scheduler says can be compared with what the model knows.
"""

from __future__ import annotations

import math
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from service.clock import Clock
from service.engines.base import Ids, Output
from service.engines.fake import FakeEngine
from service.scheduling.jobs import Call, Caller, Inference, Job
from service.scheduling.policy import Policy
from tests.support.scheduled import ONE_WORKER, SECONDS_A_TOKEN, Running, running

ROOM = 3000  # tokens of all runs at once
PLAIN = replace(
    ONE_WORKER,
    short_first_share=0.5,
    overtake=2.0,
    list_delay=10.0,
    bulk_yield=5.0,
    max_running_tokens=ROOM,
    keep_memory_seconds=1.0,
)
POLICIES = {
    "one worker of each class": PLAIN,
    "two of each, and batches": replace(
        PLAIN, workers=2, long_workers=2, batch_below=300, batch_saving=0.05
    ),
    "short and long together": replace(PLAIN, workers=2, long_workers=0),
}


@dataclass(eq=False)
class Known:
    """What the model knows of a job."""

    number: int
    job: Job
    arrival: float
    bulk: bool
    ahead: float
    tokens: int  # 0 for a call that ends without a document
    work: float
    long: bool
    in_call: bool
    deadline: float | None = None
    passed: bool = False
    started: bool = False
    settled: int = 0

    def came(self, policy: Policy) -> float:
        """When it counts as having come."""
        return self.arrival + policy.list_delay * self.ahead + policy.bulk_yield * self.bulk

    def due(self, policy: Policy) -> float:
        """Its place in the queue."""
        return self.came(policy) + policy.overtake * (self.passed and not self.in_call)


class NotingEngine(FakeEngine):
    """Notes the numbers of the documents of each run: every token of a document is its number."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(seconds=lambda _batch, n: n * SECONDS_A_TOKEN, clock=clock)
        self.started: list[list[int]] = []
        self.now_running: list[int] = []

    def run(self, ids: Ids, lengths: Ids, **options: Any) -> Output:
        if not options.get("release_memory") or ids.size > 1:
            self.started.append([int(row[0]) for row in ids])
        tokens = int(lengths.sum())
        self.now_running.append(tokens)
        try:
            return super().run(ids, lengths, **options)
        finally:
            self.now_running.remove(tokens)


class SchedulerMachine(RuleBasedStateMachine):
    """Steps that callers and time can take, in any order."""

    policy: Policy
    test: Running
    engine: NotingEngine

    @initialize(name=st.sampled_from(sorted(POLICIES)))
    def open(self, name: str) -> None:
        self.policy = POLICIES[name]
        self.context = running(self.policy, engine=NotingEngine)
        self.test = self.context.__enter__()
        assert isinstance(self.test.engine, NotingEngine)
        self.engine = self.test.engine
        self.known: list[Known] = []
        self.waiting_before: set[Known] = set()
        self.calls: list[int] = []
        self.closed = False
        self.lengths: dict[bool, list[int]] = {False: [], True: []}
        self.short_up_to = {False: math.inf, True: math.inf}
        for step in range(32):  # enough to know which lengths are short
            for tokens in (10 + 12 * step, 1000 + 45 * step):
                self.arrive(tokens, False, 0.0, False, None)
        self._pass(self.test.clock.now() + 100.0)

    # What can happen.

    @rule(
        tokens=st.one_of(st.integers(1, 400), st.integers(900, 2500)),
        bulk=st.booleans(),
        ahead=st.sampled_from([0.0, 0.2]),
        in_call=st.booleans(),
        deadline=st.one_of(st.none(), st.floats(0.05, 3.0)),
    )
    def arrive(
        self, tokens: int, bulk: bool, ahead: float, in_call: bool, deadline: float | None
    ) -> None:
        """A document comes, read already or to be read by a call."""
        number, now = len(self.known) + 1, self.test.clock.now()
        work = tokens * SECONDS_A_TOKEN
        caller = Caller(now, bulk)
        document = Inference(
            caller,
            work,
            ahead,
            tokens=tokens,
            ids=np.full(tokens, number),
            contributions=False,
            finish=lambda logits, _: logits.copy(),
        )
        job: Job = document
        if in_call:

            def read() -> None:
                self.calls.append(number)
                known.in_call, known.job = False, document
                known.passed = self._is_passed(known)
                self.test.scheduler.submit(document)
                document.future.add_done_callback(lambda _: self._settle(known))

            job = Call(caller, 0.001, ahead, function=read, follows=work)
        until = None if deadline is None else now + deadline
        long = self.policy.long_workers > 0 and tokens >= 1000
        known = Known(number, job, now, bulk, ahead, tokens, work, long, in_call, until)
        known.passed = not in_call and self._is_passed(known)
        self._submit(known)

    @rule(kind=st.sampled_from(["answers", "fails"]))
    def arrive_call(self, kind: str) -> None:
        """A call comes that no document follows."""
        number, now = len(self.known) + 1, self.test.clock.now()

        def call() -> int:
            self.calls.append(number)
            if kind == "fails":
                raise ValueError("a document that cannot be read")
            return number

        job = Call(Caller(now), 0.001, 0.0, function=call)
        known = Known(number, job, now, False, 0.0, 0, 0.001, False, True)
        self._submit(known)

    @rule(number=st.integers(0, 30))
    def leave(self, number: int) -> None:
        """A caller goes away, if there is any."""
        here = [known for known in self.known if not known.settled]
        if here and not self.closed:
            here[number % len(here)].job.future.cancel()
            self._look()

    @rule(fails=st.booleans())
    def break_or_mend(self, fails: bool) -> None:
        """From now on every run fails, or none."""
        self.engine.fail = RuntimeError("the engine broke") if fails else None

    @rule(seconds=st.floats(0.001, 2.0))
    def pass_time(self, seconds: float) -> None:
        """Time goes on, and some callers' deadlines pass."""
        if not self.closed:
            self._pass(self.test.clock.now() + seconds)

    @precondition(lambda self: len(self.known) > 74)
    @rule()
    def close(self) -> None:
        """The service ends: what waits is dropped, what runs is answered, nothing is taken."""
        if not self.closed:
            self.closed = True
            self.test.scheduler.close(0.001)

    # What must hold after each step.

    @invariant()
    def every_job_is_settled_at_most_once(self) -> None:
        assert all(known.settled <= 1 for known in self.known)
        assert all(known.job.future.done() == bool(known.settled) for known in self.known)

    @invariant()
    def the_backlog_is_that_of_the_jobs_under_way(self) -> None:
        if self.closed:
            return
        open_ones = [known for known in self.known if not known.settled]
        work = sum(k.work + (0.001 if k.in_call and k.tokens else 0.0) for k in open_ones)
        assert self.test.scheduler.depth == len(open_ones)
        assert self.test.scheduler.backlog == pytest.approx(work, abs=1e-9)

    @invariant()
    def tokens_running_are_those_of_the_runs_and_have_room(self) -> None:
        if self.closed:
            return
        runs = self.engine.now_running
        assert self.test.scheduler.tokens_running == sum(runs)
        assert sum(runs) <= ROOM or len(runs) == 1

    def teardown(self) -> None:
        """In the end everything is settled and nothing is left."""
        if not hasattr(self, "test"):
            return
        try:
            if not self.closed:
                self._pass(self.test.clock.now() + 60.0 * (1 + len(self.known)))
                assert all(known.settled == 1 for known in self.known)
                assert self.test.scheduler.depth == 0
                assert self.test.scheduler.backlog == 0.0
                assert self.test.scheduler.tokens_running == 0
        finally:
            self.context.__exit__(None, None, None)
        assert all(known.settled == 1 for known in self.known)
        answered = [n for batch in self.engine.started for n in batch]
        assert len(answered) == len(set(answered)), "a document ran twice"
        assert len(self.calls) == len(set(self.calls)), "a call was made twice"

    # How the model follows.

    def _is_passed(self, known: Known) -> bool:
        """Whether a document is longer than half of the latest of its class, and some."""
        lengths = self.lengths[known.long]
        lengths.append(known.tokens)
        if len(lengths) % 32 == 0:
            self.short_up_to[known.long] = 1.05 * sorted(lengths[-512:])[len(lengths[-512:]) // 2]
        return known.tokens > self.short_up_to[known.long]

    def _submit(self, known: Known) -> None:
        self.known.append(known)
        self.test.scheduler.submit(known.job)
        job = known.job

        def ended(_: Future[Any]) -> None:
            if known.job is job:  # else the document that was read settles it
                self._settle(known)

        job.future.add_done_callback(ended)
        self._look(submitted=known)

    def _settle(self, known: Known) -> None:
        known.settled += 1

    def _pass(self, end: float) -> None:
        """Move the time on, from event to event and from deadline to deadline."""
        while True:
            self._look()
            event = self.test.clock.next_event()
            deadlines = [k.deadline for k in self.known if k.deadline and not k.settled]
            until = min([end, *deadlines, *([] if event is None else [event])])
            self.test.clock.advance(max(0.0, until - self.test.clock.now()))
            self._look()
            now = self.test.clock.now()
            for known in self.known:
                if known.deadline is not None and known.deadline <= now and not known.settled:
                    known.deadline = None
                    known.job.future.cancel()
            if until >= end:
                self._look()
                return

    def _look(self, submitted: Known | None = None) -> None:
        """See what was started since, and whether that was its turn."""
        if self.closed:
            return
        self.test.settle()
        heads = [self.known[batch[0] - 1] for batch in self.engine.started]
        fresh = [known for known in heads if not known.started]
        candidates = self.waiting_before | ({submitted} if submitted else set())
        for batch in self.engine.started:
            for number in batch:
                self.known[number - 1].started = True
        for head in fresh:
            self._was_its_turn(head, candidates)
        self.waiting_before = {k for k in self.known if not k.started and not k.settled}

    def _was_its_turn(self, head: Known, candidates: set[Known]) -> None:
        policy = self.policy
        passed = [
            other
            for other in candidates
            if not other.started and not other.settled and other.long == head.long
            and not other.in_call and other is not head
        ]  # fmt: skip
        for other in passed:  # nothing starves
            assert head.came(policy) <= other.came(policy) + policy.overtake
        if policy is PLAIN:
            assert all(head.due(policy) <= other.due(policy) for other in passed)


SchedulerMachine.TestCase.settings = settings(
    max_examples=80, stateful_step_count=50, deadline=None
)
test_the_scheduler_does_what_its_model_says = SchedulerMachine.TestCase
