"""The scheduler's threads, with a fake engine on a virtual clock: no test here waits for time."""

from __future__ import annotations

import os
import threading
from concurrent.futures import CancelledError
from dataclasses import replace

import numpy as np
import pytest

from service.engines.base import Floats
from service.engines.fake import FakeEngine
from service.scheduling.cores import own_cores
from service.scheduling.jobs import BatchRun, Call, Caller
from service.scheduling.scheduler import JobResult
from tests.support.scheduled import ONE_WORKER, SECONDS_A_TOKEN, document, running

BATCHING = replace(ONE_WORKER, batch_below=200, batch_saving=4.1 * SECONDS_A_TOKEN)
TWO_CORES = replace(ONE_WORKER, workers=2, long_workers=2, long_work=0.5)


def alone(tokens: int) -> Floats:
    logits: Floats = FakeEngine().run(np.arange(tokens)[None], np.array([tokens])).logits[0]
    return logits


def test_a_document_gets_its_own_answer_and_its_times() -> None:
    with running() as test:
        first, second = document(700), document(300)
        test.submit(first, second)
        test.finish(first, second)
        done: JobResult = second.future.result()
    np.testing.assert_array_equal(done.value[0], alone(300))
    assert done.queued == pytest.approx(0.7)
    assert done.ran == pytest.approx(0.3)


def test_jobs_run_in_the_order_that_is_decided() -> None:
    jobs = [document(n, arrival=0.0 if n == 900 else float(n)) for n in (900, 300, 20, 100, 50)]
    with running() as test:
        test.submit(*jobs)
        test.finish(*jobs)
        assert test.engine.runs == [[900], [20], [50], [100], [300]]


def test_long_documents_do_not_hold_up_short_ones() -> None:
    with running() as test:
        test.submit(document(2000), document(2000), document(10))
        assert test.engine.runs == [[2000], [10]]


def test_a_batch_member_gets_the_answer_it_gets_alone() -> None:
    seen: list[BatchRun] = []
    jobs = [document(150), document(30), document(31)]
    with running(BATCHING, seen.append) as test:
        test.submit(*jobs)
        test.finish(*jobs)
        assert test.engine.runs == [[150], [30, 31]]
    assert [list(run.tokens) for run in seen] == [[150], [30, 31]]
    for job in jobs:
        np.testing.assert_allclose(job.future.result().value[0], alone(job.tokens), atol=1e-6)


def test_a_result_is_there_before_the_next_run_ends() -> None:
    first, second = document(10), document(20)
    with running() as test:
        test.submit(first, second)
        test.advance(0.01)
        assert first.future.done()
        assert not second.future.done()


def test_cancelled_work_is_dropped_and_no_longer_counted() -> None:
    with running() as test:
        gone, stays = document(50), document(60)
        test.submit(document(1), gone, stays)
        before = test.scheduler.backlog
        assert gone.future.cancel()
        assert test.scheduler.backlog == pytest.approx(before - 0.05)
        test.finish(stays)
        assert test.engine.runs == [[1], [60]]


def test_a_failed_batch_fails_each_of_its_waiters_and_the_worker_goes_on() -> None:
    jobs = [document(1), document(30), document(31)]
    with running(BATCHING) as test:
        test.engine.fail = RuntimeError("the engine broke")
        test.submit(*jobs)
        test.finish(*jobs)
        for job in jobs:
            with pytest.raises(RuntimeError, match="broke"):
                job.future.result()
        assert test.engine.runs == [[1], [30, 31]]
        assert not test.scheduler.healthy()
        test.engine.fail = None
        after = document(5)
        test.submit(after)
        test.finish(after)
        assert test.scheduler.healthy()
        assert (test.scheduler.backlog, test.scheduler.tokens_running) == (0.0, 0)


def test_a_call_runs_on_a_worker_and_its_error_reaches_the_waiter() -> None:
    good = Call(Caller(0.0), 0.01, 0.0, function=lambda: threading.current_thread().name)
    bad = Call(Caller(0.0), 0.01, 0.0, function=lambda: 1 // 0)
    with running() as test:
        test.submit(good, bad)
        assert good.future.result().value == "worker-0"
        with pytest.raises(ZeroDivisionError):
            bad.future.result()


def test_calls_for_long_documents_run_on_workers_for_short_ones() -> None:
    call = Call(Caller(0.0), 50.0, 0.0, function=lambda: threading.current_thread().name)
    with running() as test:
        test.submit(call)
        assert call.future.result().value == "worker-0"


def test_a_call_may_submit_what_follows_it() -> None:
    follows = document(7)
    with running() as test:
        call = Call(
            Caller(0.0), 0.01, 0.0, function=lambda: test.scheduler.submit(follows), follows=0.007
        )
        test.submit(call)
        test.finish(call, follows)
        np.testing.assert_array_equal(follows.future.result().value[0], alone(7))
        assert (test.scheduler.depth, test.scheduler.backlog) == (0, 0.0)


def test_workers_that_waited_for_room_go_on_when_there_is_some() -> None:
    jobs = [document(100) for _ in range(4)]
    with running(replace(ONE_WORKER, workers=4, max_running_tokens=250)) as test:
        test.submit(*jobs)
        assert test.engine.runs == [[100], [100]]
        test.advance(0.1)
        assert test.engine.runs == [[100]] * 4


@pytest.mark.skipif(not own_cores(), reason="the system does not tell which cores there are")
def test_workers_stay_on_their_cores() -> None:
    core = own_cores()[-1]
    call = Call(
        Caller(0.0), 0.01, 0.0, function=lambda: os.sched_getaffinity(threading.get_native_id())
    )
    with running(replace(ONE_WORKER, cores=(core,))) as test:
        test.submit(call)
        assert call.future.result().value == {core}


def test_closing_drops_what_waits_and_finishes_what_runs() -> None:
    runs, waits, late = document(10), document(20), document(30)
    with running() as test:
        test.submit(runs, waits)
        assert not test.scheduler.close(0.01)
        with pytest.raises(CancelledError):
            waits.future.result(0)
        assert not runs.future.done()
        test.clock.advance(1.0)
        assert test.scheduler.close(10)
        assert runs.future.result(0) is not None
        assert not test.scheduler.healthy()
        test.scheduler.submit(late)
        assert late.future.cancelled()


# What it takes up after the start.


def test_batches_of_a_length_found_out_later() -> None:
    jobs = [document(150), document(30), document(31)]
    with running(replace(BATCHING, batch_below=0)) as test:
        test.scheduler.adopt(batch_below=200, batch_saving=BATCHING.batch_saving)
        test.submit(*jobs)
        test.finish(*jobs)
        assert test.engine.runs == [[150], [30, 31]]
        assert test.scheduler.policy.batch_below == 200


def test_each_core_has_an_engine_that_its_two_workers_share() -> None:
    with running(TWO_CORES) as test:
        other = FakeEngine(seconds=test.engine.seconds, clock=test.clock)
        test.scheduler.adopt(engines=[other])
        assert test.scheduler.engines == {test.engine, other}
        jobs = [document(tokens) for tokens in (600, 610, 10, 11)]
        test.submit(*jobs)
        for engine in (test.engine, other):
            assert sorted(length // 100 for (length,) in engine.runs) == [0, 6]
        test.finish(*jobs)


def test_a_long_document_that_is_alone_gets_all_cores() -> None:
    seen: list[BatchRun] = []
    with running(TWO_CORES, seen.append) as test:
        wide = FakeEngine(threads=2, clock=test.clock)
        test.scheduler.adopt(all_cores=wide)
        assert test.scheduler.all_cores_threads == 2
        before = test.scheduler.cost.coefficients
        for _ in range(150):
            job = document(600)
            test.submit(job)
            assert job.future.done()
        short = document(10)
        test.submit(short)
        test.finish(short)
        assert wide.runs == [[600]] * 150
        assert test.engine.runs == [[10]]
        assert test.scheduler.cost.coefficients == before  # which is of a single core
    assert [run.all_cores for run in seen] == [True] * 150 + [False]
