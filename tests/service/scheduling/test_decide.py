"""Each decision, from a state that the test sets up: no threads, no time that passes."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from service.scheduling.decide import State, WorkerState, next_batch, worker_to_wake
from service.scheduling.jobs import Batch, Job
from tests.support.scheduled import (
    ONE_WORKER,
    SECONDS_A_TOKEN,
    document,
    lengths_in_order,
    state_of,
)

BATCHING = replace(ONE_WORKER, batch_below=200, batch_saving=4.1 * SECONDS_A_TOKEN)
TWO_CORES = replace(ONE_WORKER, workers=2, long_workers=2, cores=(4, 7), long_work=0.5)


def start(state: State, worker: WorkerState, now: float = 0.0) -> list[int] | None:
    """Start what is decided on; the lengths."""
    batch = next_batch(state, worker, now)
    if batch is None:
        return None
    state.start(worker, batch, now)
    return [job.tokens for job in batch.jobs]


def run_alone(state: State, worker: WorkerState, job: Job) -> None:
    state.add(job)
    state.start(worker, Batch((job,), job.tokens, job.work), 0.0)


def test_a_worker_takes_the_head_of_its_queue() -> None:
    waiting: list[Job] = [document(n, arrival=float(n)) for n in (300, 20, 100, 50)]
    assert lengths_in_order(state_of(), waiting) == [[20], [50], [100], [300]]


def test_each_worker_serves_its_class() -> None:
    state = state_of()
    short, long = state.workers
    for n in (2000, 1500, 10):
        state.add(document(n))
    assert start(state, short) == [10]
    assert start(state, long) == [2000]
    assert start(state, short) is None


def test_a_decision_changes_nothing() -> None:
    state = state_of(BATCHING)
    for n in (30, 31, 700):
        state.add(document(n))
    first = next_batch(state, state.workers[0], 0.0)
    assert first == next_batch(state, state.workers[0], 0.0)
    assert (state.tokens_running, state.depth) == (0, 3)


def test_tokens_of_all_runs_are_bounded() -> None:
    state = state_of(replace(ONE_WORKER, workers=4, max_running_tokens=250))
    for _ in range(4):
        state.add(document(100))
    started = [start(state, worker) for worker in state.workers[:4]]
    assert started == [[100], [100], None, None]
    assert state.workers[0].batch is not None
    state.finish(state.workers[0], state.workers[0].batch.jobs)
    assert start(state, state.workers[3]) == [100]


def test_one_document_over_the_token_bound_still_runs() -> None:
    state = state_of(replace(ONE_WORKER, max_running_tokens=10))
    state.add(document(100))
    assert start(state, state.workers[0]) == [100]


# Batches.


def test_batches_hold_nearly_equal_lengths_within_their_budget() -> None:
    policy = replace(BATCHING, max_batch_size=3, max_batch_tokens=310)
    waiting: list[Job] = [
        document(n, arrival=float(n)) for n in (100, 101, 102, 103, 30, 31, 250, 180, 178)
    ]
    batches = lengths_in_order(state_of(policy), waiting)
    assert batches[0] == [30, 31]
    assert len(batches[1]) == 3
    assert sorted(batches[1] + batches[2]) == [100, 101, 102, 103]
    assert batches[3:] == [[178], [180], [250]]


@pytest.mark.parametrize(
    ("lengths", "batches"),
    [
        ([50, 52], [[50, 52]]),  # half of what sharing saves goes into padding
        ([50, 53], [[50], [53]]),
        ([50, 52, 54], [[50, 52], [54]]),  # the third would lengthen both others
        ([50, 54, 54], [[50], [54, 54]]),
        ([50, 51, 52, 53], [[50, 51, 52, 53]]),
    ],
)
def test_padding_costs_at_most_half_of_what_sharing_saves(
    lengths: list[int], batches: list[list[int]]
) -> None:
    assert lengths_in_order(state_of(BATCHING), [document(n) for n in lengths]) == batches


def test_documents_that_want_contributions_share_with_their_like() -> None:
    waiting = [document(30) for _ in range(4)]
    waiting[1].contributions = waiting[3].contributions = True
    state = state_of(BATCHING)
    for job in waiting:
        state.add(job)
    batch = next_batch(state, state.workers[0], 0.0)
    assert batch is not None
    assert batch.jobs == (waiting[0], waiting[2])


def test_a_batch_leaves_the_other_workers_their_share() -> None:
    state = state_of(replace(BATCHING, workers=2))
    for _ in range(5):
        state.add(document(30))
    assert start(state, state.workers[0]) == [30, 30, 30]
    assert start(state, state.workers[1]) == [30]


# Where work goes.


def test_work_goes_to_the_core_with_least_to_do() -> None:
    state = state_of(TWO_CORES)
    first, second, long_first, long_second = state.workers
    assert [worker.core for worker in state.workers] == [4, 7, 4, 7]
    for worker in state.workers:
        worker.waiting = True
    run_alone(state, long_first, document(600))
    assert worker_to_wake(state, state.short) is second
    run_alone(state, second, document(10))
    run_alone(state, long_second, document(600))
    assert worker_to_wake(state, state.short) is first
    first.waiting = False
    second.waiting = False
    assert worker_to_wake(state, state.short) is None


# Idle cores lent to a long document.


def lent(state: State, tokens: int = 600) -> bool:
    state.can_use_all_cores = True
    state.add(document(tokens))
    batch = next_batch(state, state.workers[2], 0.0)
    assert batch is not None
    return batch.all_cores


def test_a_long_document_that_is_alone_gets_all_cores() -> None:
    assert lent(state_of(TWO_CORES))


def test_no_core_is_lent_without_an_engine_for_it() -> None:
    state = state_of(TWO_CORES)
    state.add(document(600))
    batch = next_batch(state, state.workers[2], 0.0)
    assert batch is not None
    assert not batch.all_cores


@pytest.mark.parametrize(("worker", "tokens"), [(3, 700), (0, 200)])
def test_a_long_document_in_company_keeps_to_its_core(worker: int, tokens: int) -> None:
    state = state_of(TWO_CORES)
    run_alone(state, state.workers[worker], document(tokens))
    assert not lent(state)


def test_what_is_soon_alone_counts_as_alone() -> None:
    state = state_of(TWO_CORES)
    run_alone(state, state.workers[0], document(10))  # over within a quarter of the long one's work
    assert lent(state)


def test_no_core_is_lent_while_short_documents_queue() -> None:
    state = state_of(TWO_CORES)
    for _ in range(40):  # each soon over, all together not within a quarter of its work
        state.add(document(10))
    assert not lent(state)


def test_deciding_takes_a_few_microseconds() -> None:
    """Median of many, with 200 documents waiting: the lock is held for so long."""
    state = state_of(replace(BATCHING, max_batch_size=8))
    for n in range(200):
        state.add(document(201 + 7 * n % 400))
    worker = state.workers[0]
    seconds = []
    for _ in range(500):
        started = time.perf_counter()
        next_batch(state, worker, 0.0)
        seconds.append(time.perf_counter() - started)
    assert sorted(seconds)[len(seconds) // 2] < 200e-6  # 20 on an idle machine
