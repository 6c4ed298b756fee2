"""Which documents share a run: found out by trying, after the service is ready."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from service.engines.fake import FakeEngine
from service.service import Service
from service.settings import Settings
from service.startup.deployment import Running
from tests.support.serving import LABELS, fake_deployment

Seconds = Callable[[int, int], float]


@contextmanager
def deployed(seconds: Seconds, group_below: int | None = None) -> Iterator[Running]:
    engine = FakeEngine(len(LABELS), seconds)
    settings = Settings(lanes=1, long_lanes=0, group_below=group_below)
    found = fake_deployment(engine).start(settings, lambda _: None)
    try:
        yield found
    finally:
        found.close()


def by_the_run(_batch: int, _n: int) -> float:
    return 0.004


def by_the_square_of_the_batch(batch: int, _n: int) -> float:
    return 0.002 * batch * batch


def test_nobody_shares_before_it_was_tried() -> None:
    with deployed(by_the_run) as running:
        assert running.scheduler.policy.group_below == 0
        running.share_runs()
        policy = running.scheduler.policy
    assert policy.group_below >= 128
    assert policy.group_saving == pytest.approx(0.004, rel=0.5)


def test_nobody_shares_where_it_takes_longer() -> None:
    with deployed(by_the_square_of_the_batch) as running:
        running.share_runs()
        assert running.scheduler.policy.group_below == 0


def test_a_length_that_was_set_holds_from_the_start_and_whatever_is_found() -> None:
    with deployed(by_the_square_of_the_batch, group_below=77) as running:
        assert running.scheduler.policy.group_below == 77
        running.share_runs()
        assert running.scheduler.policy.group_below == 77


def test_the_first_answers_come_before_what_makes_later_ones_faster() -> None:
    service = Service(Settings(lanes=1, long_lanes=0), fake_deployment(FakeEngine(len(LABELS))))
    ready = threading.Event()
    service.when_ready = ready.set
    service.start()
    assert ready.wait(20)
    service.check_ready()
    assert not service.settled.wait(0.05)
    assert not service.running.pipeline.reader.is_quick("some words")
    service.has_begun.set()
    assert service.settled.wait(20)
    assert service.running.pipeline.reader.is_quick("some words")
    service.close()


def test_a_fault_while_it_is_tried_leaves_the_service_ready() -> None:
    engine = FakeEngine(len(LABELS))
    service = Service(Settings(lanes=1, long_lanes=0), fake_deployment(engine))

    def fail_from_now_on() -> None:
        engine.fail = RuntimeError("no memory")

    service.when_ready = fail_from_now_on
    service.has_begun.set()
    service.start()
    assert service.settled.wait(20)
    service.check_ready()
    assert service.running.scheduler.policy.group_below == 0
    service.close()
