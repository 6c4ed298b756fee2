"""Documents on their way: windows on workers, deadlines and leavers between them, timings."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from service.engines.base import Ids, Output
from service.engines.fake import FakeEngine
from service.errors import DeadlinePassed, Draining, EmptyText, Overloaded
from service.pipeline import Options, Pipeline, _covered
from service.scheduling.forecast import CostModel
from service.scheduling.policy import Policy
from service.scheduling.scheduler import Scheduler
from service.text.tokenizer import Reader
from tests.support.serving import LABELS, tokenizer, wait_until

LONG = "word " * 400  # several windows
ONE_WORKER = Policy(workers=1, long_workers=0, max_batch_size=1, queue_seconds=100.0)


class NotedEngine(FakeEngine):
    """Notes the threads that call it."""

    def __init__(self) -> None:
        super().__init__(len(LABELS))
        self.threads: set[str] = set()
        self.held = threading.Event()
        self.held.set()

    def run(
        self, ids: Ids, lengths: Ids, *, contributions: bool = False, release_memory: bool = False
    ) -> Output:
        self.threads.add(threading.current_thread().name)
        output = super().run(
            ids, lengths, contributions=contributions, release_memory=release_memory
        )
        assert self.held.wait(20)
        return output


@contextmanager
def pipeline(engine: FakeEngine, policy: Policy = ONE_WORKER) -> Iterator[Pipeline]:
    """A pipeline that is closed whatever happens."""
    scheduler = Scheduler(engine, CostModel([(100, 0.01)]), policy, work_clock=time.perf_counter)
    try:
        yield Pipeline(LABELS, Reader(tokenizer(), 128, 16), scheduler)
    finally:
        if isinstance(engine, NotedEngine):
            engine.held.set()
        scheduler.close()


@pytest.mark.parametrize("evidence", [0, 3])
@pytest.mark.parametrize("quick", [False, True])
def test_a_list_gets_what_each_text_gets_alone(evidence: int, quick: bool) -> None:
    texts = [f"text {index} " + "word " * 17 * index for index in range(30)]
    options = Options(None, "window", evidence)

    async def both() -> None:
        with pipeline(
            FakeEngine(len(LABELS)), Policy(workers=2, long_workers=1, cores=())
        ) as running:
            if quick:
                running.reader.speed_up()
            together = await running.classify(texts, options)
            for text, result in zip(texts, together.results, strict=True):
                (alone,) = (await running.classify([text], options)).results
                assert alone == result

    asyncio.run(both())


def test_results_are_merged_on_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []
    average = np.average

    def noted(*values: object, **named: object) -> object:
        threads.append(threading.current_thread().name)
        return average(*values, **named)  # type: ignore[call-overload]

    monkeypatch.setattr(np, "average", noted)
    with pipeline(FakeEngine(len(LABELS))) as running:
        answer = asyncio.run(running.classify([LONG], Options()))
    assert answer.results[0].tokens.windows > 1
    assert threads
    assert all(name.startswith("worker") for name in threads)


@pytest.mark.parametrize("texts", [["a text"], [LONG], ["a", LONG, "b " * 100]])
def test_timings_add_up(texts: list[str]) -> None:
    engine = FakeEngine(len(LABELS), seconds=lambda _batch, n: 0.0002 * n)
    with pipeline(
        engine, Policy(workers=2, long_workers=0, max_batch_size=1, queue_seconds=100)
    ) as it:
        begun = time.monotonic()
        answer = asyncio.run(it.classify(texts, Options()))
        took = time.monotonic() - begun
    assert answer.tokenize + answer.queue + answer.infer == pytest.approx(answer.total)
    assert min(answer.tokenize, answer.queue) >= 0
    assert 0 < answer.infer <= answer.total <= took


def test_spans_that_overlap_count_once() -> None:
    assert _covered([(1.0, 3.0), (2.0, 4.0), (2.5, 2.6), (6.0, 7.0)]) == pytest.approx(4.0)
    assert _covered([]) == 0.0


def test_a_deadline_is_seen_between_windows() -> None:
    engine = NotedEngine()
    wasted: list[int] = []
    with pipeline(engine) as running:
        running.observe_wasted = wasted.append
        engine.held.clear()
        with pytest.raises(DeadlinePassed):
            asyncio.run(running.classify([LONG * 5], Options(timeout=1.5)))
        engine.held.set()
        wait_until(lambda: running.scheduler.depth == 0)
    assert len(engine.runs) == 1
    assert wasted == [engine.runs[0][0]]


def test_a_caller_who_leaves_is_seen_between_windows() -> None:
    engine = NotedEngine()

    async def leave(running: Pipeline) -> None:
        engine.held.clear()
        task = asyncio.create_task(running.classify([LONG * 20, "b", "c"], Options()))
        while not engine.runs:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with pipeline(engine) as running:
        asyncio.run(leave(running))
        engine.held.set()
        wait_until(lambda: running.scheduler.depth == 0)
        assert running.scheduler.backlog == pytest.approx(0.0)
    assert len(engine.runs) == 1


def test_an_error_names_its_text_and_drops_the_rest() -> None:
    engine = FakeEngine(len(LABELS))
    with pipeline(engine) as running:
        with pytest.raises(EmptyText) as caught:
            asyncio.run(running.classify(["a", " ", LONG * 50], Options()))
        wait_until(lambda: running.scheduler.depth == 0)
    assert caught.value.fields == [
        {"field": "input.1", "message": "the text is empty or only white space"}
    ]


def test_an_engine_that_fails_fails_its_document_only() -> None:
    engine = FakeEngine(len(LABELS))
    with pipeline(engine) as running:
        engine.fail = RuntimeError("broken")
        with pytest.raises(RuntimeError, match="broken"):
            asyncio.run(running.classify([LONG], Options()))
        engine.fail = None
        assert asyncio.run(running.classify([LONG], Options())).results


def test_when_the_scheduler_closes_callers_are_told() -> None:
    engine = NotedEngine()

    async def close(running: Pipeline) -> None:
        engine.held.clear()
        task = asyncio.create_task(running.classify(["a", "b", LONG], Options()))
        while not engine.runs:
            await asyncio.sleep(0.005)
        closing = asyncio.create_task(asyncio.to_thread(running.scheduler.close))
        with pytest.raises(Draining):
            await task
        engine.held.set()
        await closing

    with pipeline(engine) as running:
        asyncio.run(close(running))


def test_bulk_work_waits_for_room_and_interactive_work_is_refused() -> None:
    engine = NotedEngine()
    policy = Policy(workers=1, long_workers=0, max_batch_size=1, queue_seconds=0.02)

    async def fill(running: Pipeline) -> None:
        engine.held.clear()
        text = "word " * 100
        first = [asyncio.create_task(running.classify([text], Options())) for _ in range(2)]
        await asyncio.sleep(0.05)
        bulk = [asyncio.create_task(running.classify([text], Options(), bulk=True)) for _ in "1234"]
        await asyncio.sleep(0.05)
        assert not any(task.done() for task in bulk)
        with pytest.raises(Overloaded):
            await running.classify([text], Options())
        bulk[1].cancel()
        engine.held.set()
        await asyncio.gather(*first, bulk[0], *bulk[2:])
        assert bulk[1].cancelled()
        assert not running.room.waiters

    with pipeline(engine, policy) as running:
        asyncio.run(fill(running))


def test_bulk_work_that_waits_has_a_deadline() -> None:
    engine = NotedEngine()
    policy = Policy(workers=1, long_workers=0, max_batch_size=1, queue_seconds=0.001)

    async def fill(running: Pipeline) -> None:
        engine.held.clear()
        first = asyncio.create_task(running.classify(["word " * 100], Options()))
        await asyncio.sleep(0.05)
        with pytest.raises(DeadlinePassed):
            await running.classify(["word"], Options(timeout=0.1), bulk=True)
        engine.held.set()
        await first

    with pipeline(engine, policy) as running:
        asyncio.run(fill(running))
