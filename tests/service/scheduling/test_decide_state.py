"""What is counted of jobs, and that nothing of them is left."""

from __future__ import annotations

import pytest

from service.scheduling.jobs import Batch, Call, Caller
from tests.support.scheduled import ONE_WORKER, document, state_of


def test_a_job_is_counted_in_its_class_until_it_is_done() -> None:
    state = state_of()
    short, long = document(10), document(2000)
    for job in (short, long):
        state.add(job)
    assert (state.short.backlog, state.long.backlog) == pytest.approx((0.01, 2.0))
    state.start(state.workers[0], Batch((short,), short.tokens, short.work), 0.0)
    assert (state.depth, state.tokens_running, len(state.short.queue.waiting)) == (2, 10, 0)
    assert state.short.backlog == pytest.approx(0.01)
    state.finish(state.workers[0], [short])
    state.drop(long)
    assert (state.depth, state.tokens_running, state.backlog) == (0, 0, 0.0)


def test_a_job_that_is_dropped_twice_is_counted_once() -> None:
    state = state_of()
    gone, stays = document(50), document(60)
    state.add(gone)
    state.add(stays)
    state.drop(gone)
    state.drop(gone)
    assert state.backlog == pytest.approx(0.06)
    assert list(state.short.queue.waiting) == [stays]


def test_a_step_counts_what_follows_it() -> None:
    state = state_of()
    call = Call(Caller(0.0), 0.001, 0.0, function=lambda: None, follows=2.0)
    assert state.add(call) is state.short
    assert (state.short.backlog, state.long.backlog) == pytest.approx((0.001, 2.0))
    state.drop(call)
    assert state.backlog == 0.0


def test_a_job_that_was_dropped_while_it_ran_frees_its_tokens_at_the_end() -> None:
    state = state_of()
    job = document(50)
    state.add(job)
    state.start(state.workers[0], Batch((job,), job.tokens, job.work), 0.0)
    state.drop(job)
    assert (state.depth, state.tokens_running) == (0, 50)
    state.finish(state.workers[0], [job])
    assert state.tokens_running == 0


def test_the_border_between_short_and_long_is_a_length_whatever_is_predicted() -> None:
    state = state_of()  # long from 1,000 tokens
    for _ in range(300):
        state.cost.observe(1000, 3.0)
    assert state.cost.seconds(999) > 2 * ONE_WORKER.long_work
    job = document(10)
    state.add(job)
    state.start(state.workers[0], Batch((job,), job.tokens, job.work), 0.0)
    state.finish(state.workers[0], [job])  # a run is when predictions may have changed
    assert state.cost.seconds(999) < state.border < state.cost.seconds(1001)
