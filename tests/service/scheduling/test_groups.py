"""Which waiting documents share a run."""

from __future__ import annotations

import random
import threading
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest

from service.engines.fake import FakeEngine
from service.scheduling.queue import JobQueue
from service.scheduling.scheduler import Run
from tests.support.scheduled import (
    ONE_LANE,
    SECONDS_A_TOKEN,
    GatedEngine,
    finish_in_order,
    piece,
    running,
    wait_until,
)


def test_company_is_looked_for_in_the_order_of_the_queue() -> None:
    queue = JobQueue(overtake=4.0, list_delay=4.0, bulk_yield=5.0)
    jobs = [piece(100, arrival=float(n)) for n in range(30)]
    for job in random.Random(1).sample(jobs, len(jobs)):
        queue.push(job)
    queue.take(jobs[3])
    jobs[5].future.cancel()
    found = [job.ticket.arrival for job in queue.next_ones(16)]
    assert found == [n for n in range(18) if n not in (3, 5)]


GROUPING = replace(ONE_LANE, group_below=200, group_saving=4.1 * SECONDS_A_TOKEN)


def test_groups_hold_nearly_equal_lengths_within_their_budget() -> None:
    engine = GatedEngine()
    policy = replace(GROUPING, group_size=3, group_tokens=310)
    seen: list[Run] = []
    lengths = [100, 101, 102, 103, 30, 31, 250, 180, 178]
    with running(engine, policy, seen.append) as scheduler:
        finish_in_order(engine, scheduler, [piece(n) for n in lengths])
    groups = [sorted(run) for run in engine.runs[1:]]
    assert groups[0] == [30, 31]
    assert len(groups[1]) == 3
    assert sorted(groups[1] + groups[2]) == [100, 101, 102, 103]
    assert groups[3:] == [[178], [180], [250]]
    assert [list(run.tokens) for run in seen] == engine.runs


@pytest.mark.parametrize(
    ("lengths", "groups"),
    [
        ([50, 52], [[50, 52]]),  # half of what sharing saves goes into padding
        ([50, 53], [[50], [53]]),
        ([50, 52, 54], [[50, 52], [54]]),  # the third would lengthen both others
        ([50, 54, 54], [[50], [54, 54]]),
        ([50, 51, 52, 53], [[50, 51, 52, 53]]),
    ],
)
def test_padding_costs_at_most_half_of_what_sharing_saves(
    lengths: list[int], groups: list[list[int]]
) -> None:
    engine = GatedEngine()
    with running(engine, GROUPING) as scheduler:
        finish_in_order(engine, scheduler, [piece(n) for n in lengths])
    assert engine.runs[1:] == groups


def test_a_group_member_gets_the_answer_it_gets_alone() -> None:
    engine = GatedEngine()
    jobs = [piece(n) for n in (30, 31)]
    with running(engine, GROUPING) as scheduler:
        finish_in_order(engine, scheduler, jobs)
    assert engine.runs[1:] == [[30, 31]]
    for job in jobs:
        alone = FakeEngine().run(job.ids[None], np.array([job.tokens])).logits[0]
        np.testing.assert_allclose(job.future.result().value[0], alone, atol=1e-6)


def test_a_group_leaves_the_other_lanes_their_share() -> None:
    engine = GatedEngine()
    policy = replace(GROUPING, lanes=2)
    with running(engine, policy) as scheduler:
        occupying = [piece(199), piece(100)]
        for job in occupying:
            scheduler.submit(job)
        wait_until(lambda: len(engine.runs) == 2)
        jobs = [piece(30) for _ in range(5)]
        for job in jobs:
            scheduler.submit(job)
        engine.gate.set()
        for job in jobs:
            job.future.result(10)
    assert engine.runs[2] == [30, 30, 30]
    assert sum(len(run) for run in engine.runs[2:]) == 5


def test_a_result_is_there_before_the_next_run_ends() -> None:
    second_may_end = threading.Event()

    def seconds(_batch: int, n: int) -> float:
        assert n == 10 or second_may_end.wait(10)
        return 0.0

    first, second = piece(10), piece(20)
    with running(FakeEngine(seconds=seconds), ONE_LANE) as scheduler:
        scheduler.submit(first)
        scheduler.submit(second)
        try:
            first.future.result(5)
            assert not second.future.done()
        finally:
            second_may_end.set()
        second.future.result(10)


def test_who_there_is_no_memory_for_is_told_and_the_lane_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with running(FakeEngine(), ONE_LANE) as scheduler:
        with monkeypatch.context() as patched:
            patched.setattr("service.scheduling.scheduler.batch_of", Mock(side_effect=MemoryError))
            first = piece(30)
            scheduler.submit(first)
            with pytest.raises(MemoryError):
                first.future.result(10)
        second = piece(30)
        scheduler.submit(second)
        second.future.result(10)
