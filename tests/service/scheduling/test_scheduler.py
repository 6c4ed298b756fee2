"""The scheduler, with an engine that only takes as long as it is told."""

from __future__ import annotations

import functools
import os
import threading
import time
from concurrent.futures import CancelledError
from dataclasses import replace

import numpy as np
import pytest

from service.engines.fake import FakeEngine
from service.scheduling.cores import own_cores
from service.scheduling.queue import Step, Ticket
from service.scheduling.scheduler import Done
from tests.support.scheduled import (
    ONE_LANE,
    SECONDS_A_TOKEN,
    GatedEngine,
    finish_in_order,
    piece,
    running,
    wait_until,
)


def test_a_piece_gets_its_own_answer() -> None:
    with running(FakeEngine(), ONE_LANE) as scheduler:
        job = piece(7)
        scheduler.submit(job)
        done: Done = job.future.result(10)
    alone = FakeEngine().run(np.arange(7)[None], np.array([7])).logits[0]
    np.testing.assert_array_equal(done.value[0], alone)
    assert done.queued >= 0
    assert done.ran >= 0


def test_shortest_goes_first() -> None:
    engine = GatedEngine()
    with running(engine, ONE_LANE) as scheduler:
        order = finish_in_order(engine, scheduler, [piece(n) for n in (300, 20, 100, 50)])
    assert order == [20, 50, 100, 300]


def test_nobody_passes_while_all_is_soon_done() -> None:
    engine = GatedEngine()
    with running(engine, ONE_LANE) as scheduler:
        scheduler.submit(piece(5))
        wait_until(lambda: len(engine.runs) == 1)
        jobs = [piece(n) for n in (40, 10, 30)]
        for job in jobs:
            scheduler.submit(job)
        engine.gate.set()
        for job in jobs:
            job.future.result(10)
    assert engine.runs[1:] == [[40], [10], [30]]


def test_an_old_long_job_is_overtaken_only_for_a_while() -> None:
    engine = GatedEngine()
    policy = replace(ONE_LANE, overtake=10.0)
    old = piece(300, arrival=0.0)  # 0.3 of the usual length: passed by what arrives within 3 s
    soon, late = piece(20, arrival=2.0), piece(10, arrival=4.0)
    with running(engine, policy) as scheduler:
        order = finish_in_order(engine, scheduler, [late, old, soon])
    assert order == [20, 300, 10]


def test_a_list_queues_behind_itself() -> None:
    engine = GatedEngine()
    documents = [piece(40 + i, ahead=0.04 * i) for i in range(4)]
    single = piece(100)
    with running(engine, replace(ONE_LANE, overtake=4.0, list_delay=4.0)) as scheduler:
        order = finish_in_order(engine, scheduler, [*documents, single])
    assert order == [40, 41, 100, 42, 43]


def test_documents_above_the_usual_length_pass_one_another_no_more() -> None:
    """Of the first 48, seven in ten have up to 34 tokens: what is longer keeps its order then."""
    engine = GatedEngine()
    engine.gate.set()
    with running(engine, replace(ONE_LANE, overtake=1000.0)) as scheduler:
        for n in range(48):
            first = piece(n + 1)
            scheduler.submit(first)
            first.future.result(10)
        engine.gate.clear()
        engine.runs.clear()
        order = finish_in_order(engine, scheduler, [piece(n) for n in (300, 20, 100, 10, 40)])
    assert order == [10, 20, 300, 100, 40]


def test_bulk_work_lets_interactive_work_pass() -> None:
    engine = GatedEngine()
    policy = replace(ONE_LANE, bulk_yield=5.0)
    waiting = [piece(10, bulk=True), piece(200, arrival=1.0), piece(300, arrival=6.0)]
    with running(engine, policy) as scheduler:
        order = finish_in_order(engine, scheduler, waiting)
    assert order == [200, 10, 300]


def test_long_documents_do_not_hold_up_short_ones() -> None:
    engine = GatedEngine()
    with running(engine, ONE_LANE) as scheduler:
        long_ones = [piece(2000), piece(2000)]
        for job in long_ones:
            scheduler.submit(job)
        wait_until(lambda: len(engine.runs) == 1)
        scheduler.submit(piece(10))
        wait_until(lambda: [10] in engine.runs)
        assert engine.runs == [[2000], [10]]


@pytest.mark.parametrize(
    ("bulk", "long_wait", "short_ones"), [(False, 0.0, 1), (True, 0.0, 2), (False, 60.0, 2)]
)
def test_a_long_document_that_was_held_up_gets_half_of_the_cores(
    bulk: bool, long_wait: float, short_ones: int
) -> None:
    engine = GatedEngine()
    policy = replace(ONE_LANE, lanes=2, long_work=0.02, long_wait=long_wait)
    with running(engine, policy) as scheduler:
        held_up = piece(20, arrival=time.monotonic(), bulk=bulk)
        scheduler.submit(held_up)
        wait_until(lambda: time.monotonic() > held_up.submitted + 0.05)
        waiting = [piece(1), piece(2)]
        for job in waiting:
            scheduler.submit(job)
        wait_until(lambda: len(engine.runs) >= 1 + short_ones)
        time.sleep(0.05)
        assert len(engine.runs) == 1 + short_ones
        engine.gate.set()
        for job in (held_up, *waiting):
            job.future.result(10)


def test_work_goes_to_the_core_where_nothing_runs() -> None:
    """Lanes 0 and 1 take short documents, 2 and 3 long ones; 0 and 2 share a core, 1 and 3."""
    engine = GatedEngine()
    cores = own_cores()
    if len(cores) < 2:
        pytest.skip("needs two cores")
    policy = replace(ONE_LANE, lanes=2, long_lanes=2, long_work=0.02, cores=cores[:2])
    with running(engine, policy) as scheduler:
        for _ in range(3):  # whichever lane has waited longest
            engine.gate.clear()
            engine.runs.clear()
            long_one, short_one = piece(20, arrival=time.monotonic()), piece(1)
            scheduler.submit(long_one)
            wait_until(lambda: len(engine.runs) == 1)
            scheduler.submit(short_one)
            wait_until(lambda: len(engine.runs) == 2)
            assert scheduler.cores_at_work() == {cores[0]: 1, cores[1]: 1}
            engine.gate.set()
            for job in (long_one, short_one):
                job.future.result(10)
            wait_until(lambda: not any(scheduler.cores_at_work().values()))


def test_a_step_is_not_passed() -> None:
    engine = GatedEngine()
    seen: list[str] = []
    with running(engine, ONE_LANE) as scheduler:
        scheduler.submit(piece(900))
        wait_until(lambda: len(engine.runs) == 1)
        medium, short = piece(500, arrival=1.0), piece(2, arrival=3.0)
        for job, name in ((medium, "medium"), (short, "short")):
            job.future.add_done_callback(lambda _, name=name: seen.append(name))  # type: ignore[misc]
            scheduler.submit(job)
        call = functools.partial(seen.append, "step")
        scheduler.submit(Step(Ticket(2.0), 0.5, 0.0, call=call))
        engine.gate.set()
        wait_until(lambda: len(seen) == 3)
    assert seen == ["step", "medium", "short"]


def test_equal_documents_keep_their_order_whatever_is_predicted_of_them() -> None:
    engine = GatedEngine()
    order: list[float] = []
    with running(engine, ONE_LANE) as scheduler:
        scheduler.submit(piece(900))
        wait_until(lambda: len(engine.runs) == 1)
        jobs = [piece(100, arrival=float(n)) for n in range(3)]
        for job, work in zip(jobs, (0.12, 0.1, 0.08), strict=True):
            job.work = work
            job.future.add_done_callback(lambda _, job=job: order.append(job.ticket.arrival))  # type: ignore[misc]
            scheduler.submit(job)
        engine.gate.set()
        wait_until(lambda: len(order) == 3)
    assert order == [0.0, 1.0, 2.0]


def test_cancelled_work_is_dropped_and_no_longer_counted() -> None:
    engine = GatedEngine()
    with running(engine, ONE_LANE) as scheduler:
        scheduler.submit(piece(1))
        wait_until(lambda: len(engine.runs) == 1)
        gone, stays = piece(50), piece(60)
        scheduler.submit(gone)
        scheduler.submit(stays)
        before = scheduler.backlog
        assert gone.future.cancel()
        assert scheduler.backlog == pytest.approx(before - 0.05)
        engine.gate.set()
        stays.future.result(10)
    assert engine.runs == [[1], [60]]


def test_callers_who_come_and_leave_do_not_fill_the_memory() -> None:
    engine = GatedEngine()
    with running(engine, ONE_LANE) as scheduler:
        scheduler.submit(piece(1))
        wait_until(lambda: len(engine.runs) == 1)
        for _ in range(1000):
            job = piece(50)
            scheduler.submit(job)
            job.future.cancel()
        assert len(scheduler._fast.queue) < 200
        assert scheduler.depth == 1


def test_a_failed_group_fails_each_of_its_waiters_and_the_lane_goes_on() -> None:
    engine = GatedEngine()
    policy = replace(ONE_LANE, group_below=200)
    with running(engine, policy) as scheduler:
        engine.fail = RuntimeError("the engine broke")
        jobs = [piece(1), piece(30), piece(31)]
        for job in jobs:
            scheduler.submit(job)
        engine.gate.set()
        for job in jobs:
            with pytest.raises(RuntimeError, match="broke"):
                job.future.result(10)
        assert not scheduler.healthy()
        engine.fail = None
        after = piece(5)
        scheduler.submit(after)
        after.future.result(10)
        assert scheduler.healthy()
        wait_until(lambda: scheduler.backlog == 0.0)


def test_a_step_runs_on_a_lane_and_its_error_reaches_the_waiter() -> None:
    with running(FakeEngine(), ONE_LANE) as scheduler:
        good = Step(Ticket(0.0), 0.01, 0.0, call=lambda: threading.current_thread().name)
        bad = Step(Ticket(0.0), 0.01, 0.0, call=lambda: 1 // 0)
        for step in (good, bad):
            scheduler.submit(step)
        assert good.future.result(10).value.startswith("lane-")
        with pytest.raises(ZeroDivisionError):
            bad.future.result(10)


def test_steps_of_long_documents_run_on_fast_lanes() -> None:
    with running(FakeEngine(), ONE_LANE) as scheduler:
        step = Step(Ticket(0.0), 50.0, 0.0, call=lambda: threading.current_thread().name)
        scheduler.submit(step)
        assert step.future.result(10).value == "lane-0"


def test_a_step_that_gives_a_piece_is_answered_by_the_piece() -> None:
    with running(FakeEngine(), ONE_LANE) as scheduler:
        step = Step(Ticket(0.0), 0.01, 0.0, call=lambda: piece(7))
        scheduler.submit(step)
        done: Done = step.future.result(10)
        alone = FakeEngine().run(np.arange(7)[None], np.array([7])).logits[0]
        np.testing.assert_array_equal(done.value[0], alone)
        wait_until(lambda: scheduler.depth == 0)


def test_a_piece_that_follows_a_step_can_still_be_dropped() -> None:
    engine = GatedEngine()
    with running(engine, replace(ONE_LANE, lanes=2, tokens_running=100)) as scheduler:
        occupying = piece(100)  # all the tokens that may run
        scheduler.submit(occupying)
        wait_until(lambda: engine.runs == [[100]])
        step = Step(Ticket(0.0), 0.001, 0.0, call=lambda: piece(50))
        scheduler.submit(step)
        wait_until(lambda: scheduler.backlog == pytest.approx(0.15))
        assert step.future.cancel()
        wait_until(lambda: scheduler.backlog == pytest.approx(0.1))
        engine.gate.set()
        occupying.future.result(10)
    assert engine.runs == [[100]]


def test_tokens_in_flight_are_bounded() -> None:
    engine = GatedEngine()
    policy = replace(ONE_LANE, lanes=4, tokens_running=250)
    with running(engine, policy) as scheduler:
        jobs = [piece(100) for _ in range(4)]
        for job in jobs:
            scheduler.submit(job)
        wait_until(lambda: len(engine.runs) == 2)
        time.sleep(0.05)
        assert engine.runs == [[100], [100]]
        engine.gate.set()
        for job in jobs:
            job.future.result(10)
        assert len(engine.runs) == 4


def test_one_document_over_the_token_bound_still_runs() -> None:
    with running(FakeEngine(), replace(ONE_LANE, tokens_running=10)) as scheduler:
        job = piece(100)
        scheduler.submit(job)
        job.future.result(10)


@pytest.mark.skipif(not own_cores(), reason="the system does not tell which cores there are")
def test_lanes_stay_on_their_cores() -> None:
    core = own_cores()[-1]
    with running(FakeEngine(), replace(ONE_LANE, cores=(core,))) as scheduler:
        step = Step(
            Ticket(0.0), 0.01, 0.0, call=lambda: os.sched_getaffinity(threading.get_native_id())
        )
        scheduler.submit(step)
        assert step.future.result(10).value == {core}


def test_closing_drops_what_waits_and_finishes_what_runs() -> None:
    engine = GatedEngine()
    with running(engine, ONE_LANE) as scheduler:
        runs, waits = piece(1), piece(2)
        scheduler.submit(runs)
        wait_until(lambda: len(engine.runs) == 1)
        scheduler.submit(waits)
        threading.Timer(0.05, engine.gate.set).start()
        scheduler.close()
        assert runs.future.result(0) is not None
        with pytest.raises(CancelledError):
            waits.future.result(0)
        assert not scheduler.healthy()
        late = piece(3)
        scheduler.submit(late)
        assert late.future.cancelled()


def test_the_border_between_short_and_long_is_a_length_whatever_is_predicted() -> None:
    with running(FakeEngine(), ONE_LANE) as scheduler:  # long from 1,000 tokens
        for _ in range(300):
            scheduler.cost.observe(1000, 3 * 1000 * SECONDS_A_TOKEN)
        assert scheduler.cost.seconds(999) > 2 * ONE_LANE.long_work
        assert not scheduler.admission.is_long(scheduler.cost.seconds(999))
        assert scheduler.admission.is_long(scheduler.cost.seconds(1001))
