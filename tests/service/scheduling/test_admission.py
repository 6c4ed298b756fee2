"""What the scheduler lets in, and how long it says that one would wait."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from service.engines.fake import FakeEngine
from service.errors import Overloaded
from service.scheduling.cost import CostModel
from service.scheduling.scheduler import Scheduler
from tests.support.scheduled import ONE_LANE, GatedEngine, piece, running


def test_admission_counts_predicted_work_not_requests() -> None:
    engine = GatedEngine()
    policy = replace(ONE_LANE, queue_seconds=0.5)
    with running(engine, policy) as scheduler:
        for _ in range(4):
            scheduler.admission.admit(0.1, 30.0)
            scheduler.submit(piece(100))
        scheduler.admission.admit(0.1, 30.0)
        scheduler.submit(piece(200))
        with pytest.raises(Overloaded) as refused:
            scheduler.admission.admit(0.001, 30.0)
        assert refused.value.retry_after == pytest.approx(0.6 - 0.25, abs=0.01)
        scheduler.admission.admit(5.0, 30.0)  # the long lane is idle


def test_what_can_only_be_short_is_refused_when_only_long_ones_find_room() -> None:
    engine = GatedEngine()
    with running(engine, replace(ONE_LANE, queue_seconds=0.5)) as scheduler:
        scheduler.submit(piece(600))
        assert scheduler.admission.is_full(0.1)
        assert not scheduler.admission.is_full(math.inf)
        with pytest.raises(Overloaded) as refused:
            scheduler.admission.refuse_if_full(0.1)
        assert refused.value.retry_after == pytest.approx(0.6 - 0.25, abs=0.01)
        scheduler.admission.refuse_if_full(math.inf)


def test_a_request_that_would_wait_past_its_time_is_refused_at_once() -> None:
    engine = GatedEngine()
    with running(engine, ONE_LANE) as scheduler:
        scheduler.submit(piece(500))
        scheduler.admission.admit(0.1, 0.6)
        with pytest.raises(Overloaded):
            scheduler.admission.admit(0.1, 0.4)


def test_long_documents_are_told_that_short_ones_go_first() -> None:
    engine = GatedEngine()
    with running(engine, ONE_LANE) as scheduler:
        scheduler.submit(piece(2000))
        idle = scheduler.admission.expected_wait(2.0)
        scheduler.submit(piece(500))
        assert scheduler.admission.expected_wait(2.0) == pytest.approx(idle + 0.5)
        assert scheduler.admission.expected_wait(0.1) == pytest.approx(0.5)


def test_a_machine_that_others_use_too_makes_the_wait_longer() -> None:
    work = iter(range(1000))

    def slow_clock() -> float:
        return next(work) * 0.001  # every run seems to take one millisecond of work

    engine = FakeEngine(seconds=lambda _batch, _n: 0.01)
    scheduler = Scheduler(engine, CostModel(), ONE_LANE, work_clock=slow_clock)
    try:
        assert scheduler.admission.slowdown == 1.0
        for _ in range(30):
            job = piece(10)
            scheduler.submit(job)
            job.future.result(10)
        assert scheduler.admission.slowdown > 5
    finally:
        scheduler.close()
