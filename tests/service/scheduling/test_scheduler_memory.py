"""What a worker does beside running batches: memory that is given back, and memory that fails."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from service.engines.fake import FakeEngine
from service.errors import OutOfMemory
from service.scheduling.jobs import Call, Caller, Inference
from service.scheduling.scheduler import padded
from tests.support.scheduled import ONE_WORKER, document, running

KEEPING = replace(ONE_WORKER, keep_memory_seconds=2.0)
LARGE, MEDIUM, SMALL = 8_192, 3_000, 50


def test_batches_are_padded_with_zeros_to_the_longest() -> None:
    ids, lengths = padded([document(3), document(1)])
    np.testing.assert_array_equal(ids, [[0, 1, 2], [0, 0, 0]])
    np.testing.assert_array_equal(lengths, [3, 1])
    alone, _ = padded([document(3)])
    np.testing.assert_array_equal(alone, [[0, 1, 2]])


@pytest.mark.parametrize("long_workers", [0, 1])
def test_an_idle_worker_gives_memory_back_once_and_goes_on(long_workers: int) -> None:
    with running(replace(KEEPING, long_workers=long_workers)) as test:
        for times in (1, 2):
            job = document(LARGE)
            test.submit(job)
            test.finish(job)
            test.advance(1.9)
            assert test.engine.released == times - 1
            test.advance(0.2)
            assert test.engine.released == times
        test.advance(60.0)
        assert test.engine.released == 2
        assert test.scheduler.healthy()


def test_short_documents_leave_nothing_to_give_back() -> None:
    with running(KEEPING) as test:
        job = document(SMALL)
        test.submit(job)
        test.finish(job)
        test.advance(60.0)
        assert test.engine.released == 0


def test_memory_is_kept_while_large_documents_follow_each_other() -> None:
    with running(KEEPING) as test:
        for _ in range(3):
            job = document(LARGE)
            test.submit(job)
            test.finish(job)
            test.advance(1.5)
        assert test.engine.released == 0


@pytest.mark.parametrize("long_workers", [0, 1])
def test_short_documents_do_not_keep_what_a_large_one_needed(long_workers: int) -> None:
    with running(replace(KEEPING, long_workers=long_workers)) as test:
        large = document(LARGE)
        test.submit(large)
        test.finish(large)
        for _ in range(50):
            test.submit(document(SMALL))
            test.advance(SMALL * 1e-3)
        assert test.engine.released == 1


def test_documents_of_less_than_half_do_not_keep_what_a_large_one_needed() -> None:
    with running(replace(KEEPING, long_workers=0)) as test:
        large = document(LARGE)
        test.submit(large)
        test.finish(large)
        for _ in range(3):  # nine seconds of work without a pause
            job = document(MEDIUM)
            test.submit(job)
            test.finish(job)
        assert test.engine.released == 1
        test.advance(2.1)
        assert test.engine.released == 2  # what the medium ones needed


def test_memory_of_a_medium_document_is_given_back_too() -> None:
    with running(KEEPING) as test:
        job = document(600)
        test.submit(job)
        test.finish(job)
        test.advance(2.1)
        assert test.engine.released == 1


def test_memory_of_the_engine_for_all_cores_is_given_back_too() -> None:
    with running(replace(KEEPING, workers=2, long_workers=2)) as test:
        wide = FakeEngine(threads=2, clock=test.clock)
        test.scheduler.adopt(all_cores=wide)
        job = document(LARGE)
        test.submit(job)
        assert job.future.done()
        assert wide.runs == [[LARGE]]
        test.advance(2.1)
        assert (wide.released, test.engine.released) == (1, 0)


def test_a_large_run_that_failed_gives_its_memory_back_and_the_caller_is_asked_to_wait() -> None:
    with running(KEEPING) as test:
        test.engine.fail = MemoryError("none left")
        job = document(LARGE)
        test.submit(job)
        test.finish(job)
        with pytest.raises(OutOfMemory) as refused:
            job.future.result()
        assert refused.value.response_headers() == {"Retry-After": "5"}
        test.engine.fail = None
        test.advance(2.1)
        assert test.engine.released == 1
        after = document(SMALL)
        test.submit(after)
        test.finish(after)
        assert after.future.result() is not None


def test_a_worker_outlives_memory_that_cannot_be_given_back() -> None:
    with running(KEEPING) as test:
        job = document(LARGE)
        test.submit(job)
        test.finish(job)
        test.engine.fail = RuntimeError("the engine broke")
        test.advance(2.1)
        test.engine.fail = None
        after = document(SMALL)
        test.submit(after)
        test.finish(after)
        assert test.scheduler.healthy()


def test_memory_that_fails_outside_the_engine_is_told_in_the_same_words() -> None:
    def no_memory(*_: object) -> Inference:
        raise MemoryError

    call = Call(Caller(0.0), 0.01, 0.0, function=no_memory)
    merging = replace(document(SMALL), finish=no_memory)
    with running() as test:
        test.submit(call, merging)
        test.finish(call, merging)
        for job in (call, merging):
            with pytest.raises(OutOfMemory):
                job.future.result()
        assert test.scheduler.depth == 0
